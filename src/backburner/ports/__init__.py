"""Protocols that adapters implement; no implementations."""
