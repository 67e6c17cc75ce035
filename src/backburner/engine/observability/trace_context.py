"""The active OpenTelemetry trace of a submit, if the program uses it."""

import sys


def active_traceparent() -> str | None:
    """Return the active span as a `traceparent`; OpenTelemetry is not imported."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
