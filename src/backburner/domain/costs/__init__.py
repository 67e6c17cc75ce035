"""Budgets, usage, token estimates and quotes."""
