"""Prints events, one per line."""

from collections.abc import Iterator, Mapping
from typing import Final

from backburner.cli import printing
from backburner.client import Event

NOBODY: Final[Mapping[str, str]] = {}


def write_events(
    events: Iterator[Event],
    *,
    as_json: bool,
    with_subject: bool = False,
    names: Mapping[str, str] = NOBODY,
) -> None:
    """Print events as they arrive, optionally with the name or id of the subject."""
    for event in events:
        if as_json:
            printing.write_json(event)
            continue
        subject = _subject(event)
        whose = f"  {names.get(subject, subject)}" if with_subject else ""
        printing.write_line(f"{event['at']}{whose}  {event['type']}  {_told(event)}")


def _subject(event: Event) -> str:
    named = (
        event.get("job_id")
        or event.get("flow_id")
        or event.get("batch_id")
        or event.get("queue")
        or event.get("lane")
        or event.get("topic")
    )
    return named or ""


def _told(event: Event) -> str:
    data = event["data"]
    error = data.get("error")
    if error:
        return f"{error.get('code')}: {error.get('message')}"
    return " ".join(f"{name}={value}" for name, value in data.items())
