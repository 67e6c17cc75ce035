"""Inside another program it logs where that program says, or on stderr."""

import json
import subprocess
import sys

EMBEDDED = """
import asyncio, sys
from backburner import Backburner, PermanentError, capability

@capability("fails")
async def fails(ctx, value: dict) -> dict:
    raise PermanentError("secret")

async def main():
    async with Backburner(store="sqlite:///jobs.db", capabilities=[fails]) as bb:
        await bb.start_worker()
        await (await bb.submit(fails, {})).wait()

asyncio.run(main())
"""
CONFIGURED = """
import structlog
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stdout))
"""


def the_output_of(program, folder):
    return subprocess.run(  # noqa: S603 - our own lines
        [sys.executable, "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )


def test_where_nobody_configured_it_warnings_go_to_stderr(tmp_path):
    ended = the_output_of(EMBEDDED, tmp_path)
    lines = [json.loads(line) for line in ended.stderr.splitlines()]

    assert "" == ended.stdout
    assert {"warning"} == {line["level"] for line in lines}
    assert "job failed" in {line["event"] for line in lines}
    assert "secret" not in ended.stderr


def test_a_program_that_configured_structlog_gets_the_lines(tmp_path):
    ended = the_output_of("import sys" + CONFIGURED + EMBEDDED, tmp_path)

    assert "job failed" in ended.stdout
    assert "" == ended.stderr
