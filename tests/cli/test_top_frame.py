"""What `backburner top` draws in a terminal that has not enough lines for all."""

from io import StringIO

import pytest
from rich.console import Console

from backburner.cli.top import Frame, _drawn, _Size


def queue(name, *, running=0, queued=0, rate=0.0, failed=0):
    return {
        "name": name,
        "queued": queued,
        "running": running,
        "scheduled": 0,
        "submitted_per_minute": rate,
        "ended_per_minute": rate,
        "totals": {"failed": failed},
        "paused": False,
        "limited_until": None,
    }


def lane(name, waiting):
    return {
        "name": name,
        "state": "open",
        "pace": 60.0,
        "in_use": 0,
        "waiting": waiting,
        "parked_until": None,
    }


def failure(code):
    return {"code": code, "capability": "fail", "count": 1, "last_at": "2030-01-01"}


IDLE = [queue(f"idle-{number:02}") for number in range(16)]
BUSY = [
    queue("z-failed", failed=3),
    queue("z-flowing", rate=2.5),
    queue("z-busy", running=7, queued=1),
]


@pytest.fixture
def lines():
    """Draw a frame in a terminal of 80 columns and 24 lines."""

    def drawn(**parts):
        console = Console(width=80, height=24, file=StringIO())
        console.print(_drawn(Frame(workers=[], **parts), _Size(80, 24)))
        return [line.rstrip() for line in console.file.getvalue().splitlines()]

    return drawn


def rows(lines, part):
    """Return the first words of a part's rows."""
    start = next(n for n, line in enumerate(lines) if line.startswith(part))
    rest = lines[start + 2 :]
    end = rest.index("") if "" in rest else len(rest)
    return [line.split()[0] for line in rest[:end]]


def test_the_busiest_queues_come_first_and_those_that_failed_before_idle_ones(lines):
    drawn = lines(queues=[*IDLE, *BUSY], lanes=[], failures=[])
    names = rows(drawn, "Queues")

    assert ["z-busy", "z-flowing", "z-failed", "idle-00", "idle-01"] == names[:5]


def test_lines_that_other_parts_do_not_need_show_more_queues(lines):
    few = lines(queues=[*IDLE, *BUSY], lanes=[], failures=[failure("PERMANENT")])
    causes = [failure(f"CAUSE-{number}") for number in range(30)]
    many = lines(queues=[*IDLE, *BUSY], lanes=[], failures=causes)

    assert [24, 24] == [len(few), len(many)], "no line is left, none is too many"
    assert 13 == len(rows(few, "Queues"))
    assert 9 == len(rows(many, "Queues"))
    assert 5 == len(rows(many, "Dead letters"))


def test_lines_that_queues_do_not_need_show_more_of_the_other_parts(lines):
    causes = [failure(f"CAUSE-{number}") for number in range(30)]
    drawn = lines(queues=BUSY, lanes=[], failures=causes)

    assert 24 == len(drawn)
    assert 3 == len(rows(drawn, "Queues"))
    assert 11 == len(rows(drawn, "Dead letters"))


def test_the_lanes_that_most_calls_wait_for_come_first(lines):
    lanes = [lane("a", 0), lane("b", 2), lane("c", 40)]
    drawn = lines(queues=None, lanes=lanes, failures=None)

    assert ["c", "b", "a"] == rows(drawn, "Lanes")
    assert "Queues  this key may not see them" in drawn
