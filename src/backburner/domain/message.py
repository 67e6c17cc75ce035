"""What lies on a broker's queue."""

HINT = b'{"backburner":"work"}'
"""Says that the queue has one more job, whichever that is."""
