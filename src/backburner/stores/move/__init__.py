"""Moves all data from one store to another."""
