"""Blob stores: one module per kind of storage."""
