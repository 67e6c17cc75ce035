"""The rule of translations notices each way to break it."""

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from backburner.stores.tables import events, jobs, marks
from backburner.testing.simulation.application import RECORD_TRANSLATION, Application
from backburner.testing.simulation.disk import Disk

APPLICATION = next(app for app in map(Application, range(99)) if app.is_used)
A_JOB = {
    **dict.fromkeys(("tenant", "user", "queue"), "some"),
    **dict.fromkeys(("priority", "rank", "created_at", "ready_at", "max_attempts"), 1),
    "state": "queued",
    "input": "{}",
}


@pytest.fixture
def disk() -> Iterator[Disk]:
    """Return a disk with a job of the application and one of another."""
    disk = Disk(lambda: 0, APPLICATION.tables)
    write(disk, marks, name="translation:sim", at=0, until=0)
    for seq, capability in ((1, "sim.work"), (2, "sim.other")):
        write(disk, jobs, seq=seq, capability=capability, **A_JOB, id=f"job_{seq}")
    yield disk
    disk.close()


def write(disk: Disk, table: sa.Table, **values: Any) -> None:
    disk.writing.execute(sa.insert(table).values(values))


def happen(disk: Disk, seq: int, *, job: int = 1, type_: str = "job.started") -> None:
    write(disk, events, seq=seq, job=job, n=seq, type=type_, at=0)


def forget(disk: Disk, seq: int) -> None:
    disk.writing.execute(sa.delete(events).where(events.c.seq == seq))


def pass_by(disk: Disk, seq: int) -> None:
    """Move the mark on."""
    moving = sa.update(marks).where(marks.c.at < seq)
    disk.writing.execute(moving.values(at=seq))


def translate(disk: Disk, *numbers: int, publishes: bool = True) -> None:
    for number in numbers:
        disk.writing.execute(RECORD_TRANSLATION, {"event": number})
        if publishes:
            data = f'{{"event":{number}}}'
            told = {"type": "translated", "topic": "translations", "data": data}
            write(disk, events, **told, n=0, at=0)
        pass_by(disk, number)


def told(disk: Disk) -> list[tuple[str, str]]:
    return [(breach.job, breach.told) for breach in APPLICATION.breaches(disk)]


def test_what_is_translated_once_and_in_order_is_right(disk: Disk) -> None:
    happen(disk, 1)
    happen(disk, 2, job=2)
    happen(disk, 3, type_="job.progress")
    happen(disk, 4, type_="job.succeeded")

    assert APPLICATION.is_behind(disk)
    translate(disk, 1, 4)

    assert not APPLICATION.is_behind(disk)
    assert [] == told(disk)


def test_an_event_that_the_mark_has_passed_is_missed(disk: Disk) -> None:
    happen(disk, 1)
    happen(disk, 2)
    translate(disk, 2)

    assert [("event 1", "was translated 0 times, not 1")] == told(disk)


def test_an_event_that_was_pruned_before_the_mark_came_is_not_missed(
    disk: Disk,
) -> None:
    happen(disk, 1)
    forget(disk, 1)

    assert not APPLICATION.is_behind(disk)
    assert [] == told(disk)


def test_an_event_that_was_pruned_after_the_mark_passed_is_missed(disk: Disk) -> None:
    happen(disk, 1)
    pass_by(disk, 1)
    forget(disk, 1)

    assert [("event 1", "was translated 0 times, not 1")] == told(disk)


def test_a_second_translation_is_noticed(disk: Disk) -> None:
    happen(disk, 1)
    translate(disk, 1, 1)

    assert [("event 1", "was translated 2 times, not 1")] == told(disk)


def test_the_translation_of_another_capability_is_noticed(disk: Disk) -> None:
    happen(disk, 1, job=2)
    translate(disk, 1)

    assert [("event 1", "was translated 1 times, not 0")] == told(disk)


def test_another_order_is_noticed(disk: Disk) -> None:
    happen(disk, 1)
    happen(disk, 2)
    translate(disk, 2, 1)

    assert [("", "is out of order: [2, 1]")] == told(disk)


def test_a_translation_without_its_event_is_noticed(disk: Disk) -> None:
    happen(disk, 1)
    translate(disk, 1, publishes=False)

    assert [("", "published [], committed [1]")] == told(disk)


def test_a_world_without_the_application_has_no_rule(disk: Disk) -> None:
    happen(disk, 1)
    other = next(app for app in map(Application, range(99)) if not app.is_used)

    assert ([], False) == ([*other.breaches(disk)], other.is_behind(disk))
