"""Webhooks: addresses, signatures and deliveries."""
