"""Keys, scopes and rate limits of callers."""
