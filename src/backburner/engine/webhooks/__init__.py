"""Webhooks and callbacks: endpoints, deliveries, signatures."""
