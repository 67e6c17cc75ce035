"""What every peer in Python runs, and where it leaves its marks. Standard library."""

import os

_marks = os.open(os.environ["BENCH_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def payload(i: int) -> dict[str, object]:
    """Return some 200 bytes, as Backburner gets."""
    return {"i": i, "user": "u-000042", "kind": "noop", "pad": "x" * 150}


def run(value: dict[str, object]) -> object:
    """Do nothing, leave a mark, and give the index back."""
    os.write(_marks, b".")
    return value["i"]
