"""The command for schedules."""

from backburner.cli import printing
from backburner.cli.asking import JsonOption, KeyOption, UrlOption, connect

HEADINGS = ("SCHEDULE", "CAPABILITY", "CRON", "ZONE", "MISSED", "NEXT", "LAST")


def schedules(
    *, as_json: JsonOption = False, url: UrlOption = None, api_key: KeyOption = None
) -> None:
    """List the schedules and when each fires next."""
    with connect(url, api_key) as client:
        found = client.schedules()
    if as_json:
        for schedule in found:
            printing.write_json(schedule)
        return
    printing.write_rows(
        HEADINGS,
        (
            (
                schedule["name"],
                schedule["capability"],
                schedule["cron"],
                schedule["timezone"],
                schedule["missed"],
                schedule["next_at"],
                schedule["last_at"],
            )
            for schedule in found
        ),
    )
