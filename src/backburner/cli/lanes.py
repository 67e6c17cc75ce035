"""The command for lanes: rate limits of calls to providers."""

from backburner.cli import printing
from backburner.cli.asking import JsonOption, KeyOption, UrlOption, connect

HEADINGS = ("LANE", "STATE", "PACE", "CEILING", "IN USE", "LAST MINUTE", "UNTIL")


def lanes(
    *, as_json: JsonOption = False, url: UrlOption = None, api_key: KeyOption = None
) -> None:
    """List the lanes of providers, their rates and which are paused."""
    with connect(url, api_key) as client:
        found = client.lanes()
    if as_json:
        for lane in found:
            printing.write_json(lane)
        return
    printing.write_rows(
        HEADINGS,
        (
            (
                lane["name"],
                lane["state"],
                lane["pace"],
                lane["ceiling"],
                lane["in_use"],
                lane["last_minute"],
                lane["parked_until"],
            )
            for lane in found
        ),
    )
