"""Reads the output of a child process, within a limit of bytes and time."""

import selectors
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Final

from backburner_extractors.errors import ExtractionError
from backburner_extractors.limits import Limits
from backburner_extractors.memory import is_about_memory, out_of_memory

CHUNK: Final = 1 << 16
MOST_ERRORS: Final = 4_096


class Output:
    """The lines of a child's standard output; keeps the start of its errors."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", deadline: float, longest: int
    ) -> None:
        self.process = process
        self.deadline = deadline
        self.left = longest
        self.errors = b""

    def lines(self) -> Iterator[bytes]:
        """Yield complete lines until the child closes its output."""
        pieces: list[bytes] = []
        for chunk in self._chunks():
            self._count(len(chunk))
            *whole, rest = chunk.split(b"\n")
            for line in whole:
                yield b"".join([*pieces, line])
                pieces.clear()
            pieces.append(rest)

    def _count(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise ExtractionError(
                "TEXT_TOO_LARGE", "The result is longer than the limits allow."
            )

    def _chunks(self) -> Iterator[bytes]:
        process = self.process
        assert process.stdout  # noqa: S101 - it was asked for
        assert process.stderr  # noqa: S101 - it was asked for
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            selector.register(process.stderr, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in self._ready(selector):
                    chunk: bytes = key.fileobj.read(CHUNK)  # type: ignore[union-attr]
                    if not chunk:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is process.stdout:
                        yield chunk
                    else:
                        self.errors = (self.errors + chunk)[:MOST_ERRORS]

    def _ready(
        self, selector: selectors.BaseSelector
    ) -> list[tuple[selectors.SelectorKey, int]]:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise ExtractionError("TIMED_OUT", "Reading the file took too long.")
        return selector.select(left)


def death(
    status: int, errors: bytes, limits: Limits, *, used_memory: bool
) -> ExtractionError:
    """Return the error for a child that ended without an answer."""
    if status == -signal.SIGXCPU:
        return ExtractionError(
            "TIMED_OUT",
            f"Reading the file took more than {limits.cpu_seconds} s of CPU time.",
        )
    if used_memory or is_about_memory(errors):
        return out_of_memory(limits)
    return ExtractionError(
        "EXTRACTOR_CRASHED",
        f"The process that read the file ended with status {status}: a damaged file,"
        f" or more than {limits.memory_bytes >> 20} MiB of memory.",
    )
