"""API keys, signed tokens and signed URLs."""
