"""Recognises text in images with tesseract, if it is installed."""

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Final

from backburner_extractors.collector import Collector
from backburner_extractors.errors import ExtractionError
from backburner_extractors.memory import is_about_memory, out_of_memory
from backburner_extractors.sandbox import die_with_parent

NO_LANGUAGE: Final = b"loading language"
INSTALL: Final = "Install tesseract (Debian: apt-get install tesseract-ocr)."


def find_tesseract() -> str | None:
    """Return the path of the program, or None."""
    return shutil.which("tesseract")


def recognise(program: str, image: bytes, collector: Collector) -> str:
    """Return the text in an image file of any format that tesseract reads."""
    limits = collector.limits
    command = [program, "stdin", "stdout", "-l", collector.languages]
    try:
        done = subprocess.run(  # noqa: S603 - no shell, no word of the user
            command,
            input=image,
            capture_output=True,
            timeout=limits.wall_seconds,
            check=False,
            env={**os.environ, "OMP_THREAD_LIMIT": "1"},
            preexec_fn=_before_start(),
        )
    except subprocess.TimeoutExpired:
        raise ExtractionError(
            "TIMED_OUT", f"OCR took longer than {limits.wall_seconds:g} s."
        ) from None
    if done.returncode:
        raise _failure(done, collector)
    return done.stdout.decode("utf-8", "replace")


def _failure(
    done: "subprocess.CompletedProcess[bytes]", collector: Collector
) -> ExtractionError:
    limits = collector.limits
    if NO_LANGUAGE in done.stderr:
        return ExtractionError(
            "OCR_UNAVAILABLE",
            f"tesseract cannot read the languages {collector.languages!r} here."
            " Install their data (Debian: apt-get install tesseract-ocr-LANGUAGE).",
        )
    if done.returncode == -signal.SIGXCPU:
        return ExtractionError(
            "TIMED_OUT", f"OCR took more than {limits.cpu_seconds} s of CPU time."
        )
    if is_about_memory(done.stderr) or done.returncode == -signal.SIGABRT:
        return out_of_memory(limits)
    return ExtractionError(
        "CORRUPT_FILE", f"tesseract could not read an image ({done.returncode})."
    )


def _before_start() -> Callable[[], None] | None:
    """Return the function that the new process runs first, unsafe with threads."""
    return die_with_parent if threading.active_count() == 1 else None


class Pages:
    """OCR for the pages of one file that have no text, within the limits."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.program = find_tesseract()
        self.count = 0

    def read(self, render: Callable[[], bytes]) -> str:
        """Return the text of a page, of which `render` returns an image."""
        if self.program is None:
            self.collector.ocr = "unavailable"
            return ""
        if self.count >= self.collector.limits.max_ocr_pages:
            return ""
        self.count += 1
        self.collector.ocr = "used"
        return recognise(self.program, render(), self.collector)

    def finish(self) -> None:
        """Raise an error if the file has only images and OCR is not available."""
        has_text = any(page.text for page in self.collector.pages)
        if self.collector.ocr == "unavailable" and not has_text:
            raise unavailable()


def unavailable() -> ExtractionError:
    """Return the error for text in images that cannot be read without OCR."""
    return ExtractionError(
        "OCR_UNAVAILABLE", f"The file has text only in images. {INSTALL}"
    )
