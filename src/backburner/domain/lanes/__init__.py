"""Lanes: rate limits that all workers share."""
