"""Calls to AI models, and the lanes that limit them."""
