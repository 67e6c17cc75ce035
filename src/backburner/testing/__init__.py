"""Shipped to authors of plug-ins and applications: conformance suites and doubles."""
