"""
Reads a file in a child process with limits on memory, CPU time and time.

A child is a fresh interpreter in a process group of its own. The thread that starts it
lives until the child has ended, as the kernel ties the child's life to that thread.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from backburner_extractors import wire
from backburner_extractors.collector import ENGLISH
from backburner_extractors.errors import ExtractionError
from backburner_extractors.limits import DEFAULT_LIMITS, Limits
from backburner_extractors.memory import has_used_up
from backburner_extractors.model import Extracted
from backburner_extractors.output import Output, death

COMMAND: Final = (sys.executable, "-P", "-m", "backburner_extractors.child")
HANDED_ON: Final = (
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "PATH",
    "PYTHONPATH",
    "TESSDATA_PREFIX",
)
"""The only environment variables that the child gets: it needs no secrets."""
LONGEST_SUFFIX: Final = 16


async def extract(
    path: Path,
    *,
    file_name: str = "",
    limits: Limits = DEFAULT_LIMITS,
    languages: str = ENGLISH,
) -> Extracted:
    """
    Read the file at `path` in a child process.

    The suffix of `file_name` distinguishes Markdown and CSV from plain text; all other
    types are detected from the content. `languages` are tesseract's, for example
    `eng+deu`. If the caller is cancelled, the child process is killed.
    """
    # The child process imports this module too, and has no use for these.
    import asyncio  # noqa: PLC0415
    from concurrent.futures import Future  # noqa: PLC0415

    child = Child(path, file_name, limits, languages)
    answer: Future[Extracted] = Future()
    answer.set_running_or_notify_cancel()
    ends = (answer.set_result, answer.set_exception)
    threading.Thread(target=_run, args=(child, *ends), daemon=True).start()
    try:
        return await asyncio.wrap_future(answer)
    finally:
        child.kill()


def extract_apart(
    path: Path,
    *,
    file_name: str = "",
    limits: Limits = DEFAULT_LIMITS,
    languages: str = ENGLISH,
) -> Extracted:
    """Do what `extract` does, for a caller without an event loop."""
    return Child(path, file_name, limits, languages).run()


def _run(
    child: "Child",
    succeed: Callable[[Extracted], None],
    fail: Callable[[BaseException], None],
) -> None:
    try:
        succeed(child.run())
    except BaseException as error:  # noqa: BLE001 - the caller gets it
        fail(error)


class Child:
    """One child process, from its start to its end."""

    def __init__(
        self, path: Path, file_name: str, limits: Limits, languages: str
    ) -> None:
        self.limits = limits
        suffix = Path(file_name or path.name).suffix[:LONGEST_SUFFIX]
        self.request = wire.Request(
            os.getpid(), path.absolute(), suffix, limits, languages
        )
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def run(self) -> Extracted:
        """Start the process and return its result, or raise what it reports."""
        self.request.path.stat()
        deadline = time.monotonic() + self.limits.wall_seconds
        with self._start() as process:
            _send(process, wire.encode_request(self.request))
            output = Output(process, deadline, wire.longest_answer(self.limits))
            try:
                found = wire.decode_answer(output.lines())
            finally:
                self.kill()
                peak = _reap(process)
        if found is None:
            used_memory = has_used_up(peak, self.limits)
            status = process.returncode
            raise death(status, output.errors, self.limits, used_memory=used_memory)
        return found

    def _start(self) -> "subprocess.Popen[bytes]":
        """Start the process, unless the caller has been cancelled already."""
        with self._lock:
            if self._is_over:
                raise ExtractionError("EXTRACTOR_CRASHED", "The caller was cancelled.")
            self._process = _started()
        return self._process

    def kill(self) -> None:
        """Kill the process and those that it started; also before it has started."""
        with self._lock:
            if self._process is not None and not self._is_over:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._is_over = True


def _started() -> "subprocess.Popen[bytes]":
    environment = {key: os.environ[key] for key in HANDED_ON if key in os.environ}
    try:
        return subprocess.Popen(  # noqa: S603 - no shell, no word of the user
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise ExtractionError(
            "EXTRACTOR_CRASHED",
            f"The child process could not be started: {error.strerror}.",
        ) from error


def _reap(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the end of a process and return its peak of memory in bytes."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss << 10


def _send(process: "subprocess.Popen[bytes]", request: bytes) -> None:
    """Write a request, which fits into the pipe's buffer, and close the input."""
    assert process.stdin  # noqa: S101 - it was asked for
    try:
        process.stdin.write(request)
    except BrokenPipeError:
        return
    finally:
        process.stdin.close()
