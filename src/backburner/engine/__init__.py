"""Asks the domain, tells the ports."""
