"""Event streams over SSE and WebSocket."""
