"""A Bot API server that nobody here wrote: npm's telegram-test-api, as a process."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.ports import held_port

HOME = Path(__file__).parents[1] / "tools" / "telegram-test-api"
PROGRAM = """
const TelegramServer = require("telegram-test-api");
const server = new TelegramServer({host: "127.0.0.1", port: Number(process.argv[1])});
server.start().then(() => console.log("ready"));
"""


class BotApi:
    """The server, and the people who write to its bots."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        """What `TELEGRAM_API_BASE_URL` is to be."""
        self._client = httpx2.Client(base_url=self.url, trust_env=False, timeout=60)

    def say(self, token: str, user: dict[str, Any], text: str) -> None:
        """Have a user write to a bot in a private chat, with a date in milliseconds."""
        chat = {"id": user["id"], "type": "private"}
        message = {"botToken": token, "from": user, "chat": chat, "text": text}
        sent = self._client.post("/sendMessage", json=message | {"date": 1794975000000})
        sent.raise_for_status()

    def replies(self, token: str, chat_id: int) -> list[dict[str, Any]]:
        """Return what a bot wrote to a chat that was not asked for before."""
        body = {"token": token, "chatId": chat_id}
        answer = self._client.post("/getUpdates", json=body)
        found: list[dict[str, Any]] = answer.json()["result"]
        return [reply["message"] for reply in found]

    def close(self) -> None:
        """Hang up."""
        self._client.close()


@contextmanager
def started() -> Iterator[BotApi]:
    """Start one, or skip where it is not installed; in CI that is a failure."""
    node = HOME / "node_modules" / ".bin" / "node"
    if not node.exists():
        missing = "the fake Bot API is not installed: run the tests by `make test`"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    with ExitStack() as stack:
        port = stack.enter_context(held_port())
        process = stack.enter_context(
            subprocess.Popen(
                [node, "-e", PROGRAM, str(port)],
                cwd=HOME,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
            )
        )
        server = BotApi(port)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n", "it has ended"
            yield server
        finally:
            server.close()
            process.terminate()
            process.wait()
