"""A fake LLM server that nobody here wrote: npm's aimock, as a process of its own."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.ports import held_port

HOME = Path(__file__).parents[1] / "tools" / "aimock" / "node_modules"
STARTED_SECONDS = 30.0
FIRST = '{"fixtures": [{"match": {"model": "none"}, "response": {"content": "-"}}]}'
"""Without any it warns; `reset` forgets it."""


class AiMock:
    """The server; what it answers and how it fails is told to it over HTTP."""

    def __init__(self, port: int, pid: int) -> None:
        self.root = f"http://127.0.0.1:{port}"
        self.url = f"{self.root}/v1"
        """What `OPENAI_BASE_URL` is to be."""
        self.pid = pid
        self._client = httpx2.Client(base_url=self.root, trust_env=False)

    def reset(self) -> None:
        """Forget everything."""
        self._told("POST", "/reset")
        self._told("DELETE", "/chaos")

    def answers(self, text: str, to: str = "", **match: Any) -> None:
        """Have it answer a message that has `to` in it; the first that fits counts."""
        self.add({"content": text}, to, **match)

    def add(self, response: dict[str, Any], to: str = "", **match: Any) -> None:
        """Have it respond, with an error if you like: `{"error": …, "status": 500}`."""
        match = {"userMessage": to, **match} if to else match
        fixture = {"match": match, "response": response}
        self._told("POST", "/fixtures", {"fixtures": [fixture]})

    def chaos(self, **rates: float) -> None:
        """Have it fail: `rateLimitRate`, `dropRate`, `malformedRate`, `latencyMs`, …"""
        self._told("POST", "/chaos", rates)

    def requests(self) -> list[dict[str, Any]]:
        """Return what it was asked, in order."""
        entries: list[dict[str, Any]] = self._client.get("/__aimock/journal").json()
        return entries

    def is_up(self) -> bool:
        """Tell whether it answers."""
        with suppress(httpx2.HTTPError):
            return self._client.get("/health").is_success
        return False

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def _told(self, method: str, path: str, body: Any = None) -> None:
        answer = self._client.request(method, f"/__aimock{path}", json=body or {})
        answer.raise_for_status()


@contextmanager
def started(folder: Path) -> Iterator[AiMock]:
    """Start one, or skip where it is not installed; in CI that is a failure."""
    node, program = HOME / ".bin" / "node", HOME / ".bin" / "llmock"
    if not node.exists() or not program.exists():
        missing = "the fake LLM server is not installed: run the tests by `make test`"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    fixtures = folder / "fixtures.json"
    fixtures.write_text(FIRST)
    with ExitStack() as stack:
        port = stack.enter_context(held_port())
        words = ["-p", str(port), "-f", fixtures, "--log-level", "silent"]
        process = stack.enter_context(
            subprocess.Popen([node, program, *words], stdin=subprocess.DEVNULL)
        )
        mock = AiMock(port, process.pid)
        try:
            asyncio.run(_up(mock, process))
            yield mock
        finally:
            mock.close()
            process.terminate()
            process.wait()


async def _up(mock: AiMock, process: "subprocess.Popen[bytes]") -> None:
    async with asyncio.timeout(STARTED_SECONDS):
        while not await asyncio.to_thread(mock.is_up):
            assert process.poll() is None, "the fake LLM server has ended"
            await asyncio.to_thread(_pause, process)


def _pause(process: "subprocess.Popen[bytes]") -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.05)
