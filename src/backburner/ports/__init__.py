"""Protocols only: what the engine asks of the world."""
