"""Schemathesis over the whole API: what it may answer is what is described."""

import asyncio
import copy
import subprocess
import sys

import pytest

from backburner.domain.auth.access import SCOPES

pytestmark = pytest.mark.thorough

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "ignored_auth",
)
PROGRAM = "from schemathesis.cli import schemathesis; schemathesis()"
ENDLESS = "watch_all"
"""It never ends, so its end cannot be awaited; the crawler reads it."""
PAUSES = "queues:admin"
"""On a paused queue jobs never end either, nor do the streams of their events."""


LONGEST = 3
"""Lists of thousands take minutes to make up; their limits have their own tests."""


def simplified(described):
    """Have only short lists made up, flows where they stand alone, and short waits."""
    described = copy.deepcopy(described)
    for name in ("BatchRequest", "MembersRequest"):
        described["components"]["schemas"][name]["properties"].pop("flows")
    shorten(described)
    return described


def shorten(part):
    for value in part.values() if isinstance(part, dict) else part:
        if isinstance(value, dict) and "maxItems" in value:
            value["maxItems"] = min(LONGEST, value["maxItems"])
        if isinstance(value, dict) and value.get("example") == "wait=10":
            value["example"] = "wait=0"
        if isinstance(value, (dict, list)):
            shorten(value)


QUICK = ("--phases", "examples,fuzzing", "--max-examples", "3")
LONG = ("--phases", "examples,coverage,fuzzing", "--max-examples", "8")


def run(url, key, folder, *chosen):
    """Run Schemathesis against a server; return its exit code and its report."""
    ended = subprocess.run(  # noqa: S603 - our own line
        [
            *(sys.executable, "-c", PROGRAM, "run", f"{url}/openapi.json"),
            *("--header", f"Authorization: Bearer {key}"),
            *("--checks", ",".join(CHECKS)),
            *chosen,
            *("--request-timeout", "20"),
            *("--seed", "1", "--no-color"),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    return ended.returncode, ended.stdout


@pytest.mark.parametrize(
    "length",
    [QUICK, pytest.param(LONG, marks=pytest.mark.chaos)],
    ids=["quick", "long"],
)
async def test_nothing_that_is_not_described_is_answered(serve, tmp_path, length):
    server = await serve(keyed=True)
    server.app.openapi_schema = simplified(server.app.openapi())
    key = await server.key("default", *(SCOPES - {PAUSES}))
    chosen = ("--exclude-operation-id", ENDLESS, *length)
    code, told = await asyncio.to_thread(run, server.url, key, tmp_path, *chosen)

    assert 0 == code, told
    assert "Tested: 0" not in told


async def test_what_is_not_described_is_found(serve, tmp_path):
    server = await serve(keyed=True)
    key = await server.key("default", *SCOPES)
    told_of = server.app.openapi()["paths"]["/v1/keys"]["post"]["responses"]
    told_of.pop("201")
    chosen = ("--include-operation-id", "create_key", *QUICK)
    code, told = await asyncio.to_thread(run, server.url, key, tmp_path, *chosen)

    assert 1 == code
    assert "Undocumented" in told, told
