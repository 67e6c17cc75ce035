"""The engine over the wire."""
