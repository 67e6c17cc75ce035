"""Providers of models, by entry point; each is loaded only if it is chosen."""
