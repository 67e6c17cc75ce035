"""Requests to other servers: every address is judged when it is connected to."""
