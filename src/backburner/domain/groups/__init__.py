"""Flows and batches."""
