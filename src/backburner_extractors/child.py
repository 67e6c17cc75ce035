"""
The child process of `extract`: `python -m backburner_extractors.child`.

Reads a request from standard input, limits itself, reads the file and writes the
result to standard output.
"""

import os
import sys

from backburner_extractors import wire
from backburner_extractors.collector import Collector
from backburner_extractors.errors import ExtractionError
from backburner_extractors.here import prepare
from backburner_extractors.limits import Limits
from backburner_extractors.memory import is_nearly_used_up, out_of_memory
from backburner_extractors.sandbox import confine, die_with


def main() -> None:
    """Handle one request."""
    request = wire.decode_request(sys.stdin.buffer.read())
    die_with(request.parent)
    try:
        _answer(request)
    except ExtractionError as error:
        _write(wire.encode_error(_true_reason(error, request.limits)))
    except MemoryError:
        _write(wire.encode_error(out_of_memory(request.limits)))


def _answer(request: wire.Request) -> None:
    """Import the reader before setting limits, which are meant for the file."""
    collector = Collector(request.limits, request.languages)
    read = prepare(request.path, f"file{request.suffix}", collector)
    confine(request.limits)
    for line in wire.encode_result(read()):
        _write(line)


def _true_reason(error: ExtractionError, limits: Limits) -> ExtractionError:
    """Replace the error of a library that reports a lack of memory as damage."""
    if error.code == "CORRUPT_FILE" and is_nearly_used_up(limits):
        return out_of_memory(limits)
    return error


def _write(line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    main()
