"""Reads a file in this process, for example in a Lambda function."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from backburner_extractors.collector import ENGLISH, Collector
from backburner_extractors.detection import detect_type, read_head
from backburner_extractors.errors import ExtractionError
from backburner_extractors.limits import DEFAULT_LIMITS, Limits
from backburner_extractors.memory import out_of_memory
from backburner_extractors.model import Extracted
from backburner_extractors.readers import ARCHIVES, MODULES, Read, reader_of


def extract_here(
    path: Path,
    *,
    file_name: str = "",
    limits: Limits = DEFAULT_LIMITS,
    languages: str = ENGLISH,
) -> Extracted:
    """
    Read the file at `path` in this process.

    A crash of a parser or a lack of memory ends this process; `extract` protects
    against both. The other arguments are those of `extract`.
    """
    return prepare(path, file_name, Collector(limits, languages))()


def prepare(
    path: Path, file_name: str, collector: Collector
) -> Callable[[], Extracted]:
    """Detect the type and import its reader; return a function that reads the file."""
    content_type = detect_type(read_head(path), path, file_name)
    read = reader_of(content_type)
    if content_type in ARCHIVES:
        read = _checked(read)
    return partial(_read, path, content_type, read, collector)


def _checked(read: Read) -> Read:
    """Return a reader that checks the archive first."""
    # Only here, as other files need no `zipfile`, which takes long to import.
    from backburner_extractors.archive import check_archive  # noqa: PLC0415

    def read_checked(path: Path, collector: Collector) -> None:
        check_archive(path, collector.limits)
        read(path, collector)

    return read_checked


def _read(path: Path, content_type: str, read: Read, collector: Collector) -> Extracted:
    limits = collector.limits
    try:
        read(path, collector)
    except (ExtractionError, OSError):
        raise
    except MemoryError as error:
        raise out_of_memory(limits) from error
    except Exception as error:
        raise _corrupt(content_type, error) from error
    return collector.result(content_type)


def _corrupt(content_type: str, error: Exception) -> ExtractionError:
    """Convert a library's error, whose text may quote the file, to ours."""
    return ExtractionError(
        "CORRUPT_FILE",
        f"The file is damaged or is not a valid {MODULES[content_type].upper()} file"
        f" ({type(error).__name__}).",
    )
