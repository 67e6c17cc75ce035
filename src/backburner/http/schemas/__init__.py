"""Requests and responses of the HTTP API as Pydantic models."""
