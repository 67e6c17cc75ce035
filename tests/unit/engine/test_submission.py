from datetime import UTC, datetime, timedelta, timezone
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any

import orjson
import pytest
from pydantic import BaseModel, Field

from backburner.domain.errors import InvalidInput, UnknownCapability
from backburner.domain.jobs.job import LATEST, Owner, rfc3339
from backburner.engine.registry import Registry, capability
from backburner.engine.run.context import Context
from backburner.engine.submit.submission import (
    LOCAL,
    Options,
    Submission,
    group_options,
    instant,
    job_options,
)
from backburner.testing.doubles import FrozenClock, SeededDice
from backburner.testing.samples import NOON

ONE = datetime(2026, 1, 1, 13, tzinfo=UTC)
HOUR = 3_600_000


class Greeting(BaseModel):
    name: str = Field(max_length=10)
    times: int = 1


@capability("wave", queue="silent")
async def wave(_ctx: Context, _value: dict[str, Any]) -> None:
    return None


@capability("greet", queue="polite", max_attempts=4)
async def greet(_ctx: Context, value: Greeting) -> str:
    return value.name


@pytest.fixture
def prepare():
    submission = Submission(Registry([greet, wave]), FrozenClock(), SeededDice())

    def prepare(value=None, **options):
        return submission.prepare("greet", value or {"name": "Ann"}, Options(**options))

    return prepare


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("delay", 5, "timedelta(seconds=5), not 5"),
        ("run_at", "tomorrow", "must be a datetime, not 'tomorrow'"),
        ("start_by", 5, "must be a datetime"),
        ("deadline", timedelta(1), "must be a datetime"),
        ("tags", "night", "must be a list of texts, not 'night'"),
        ("priority", "high", "from 0 to 9"),
        ("max_attempts", "3", "from 1 to 100"),
        ("tokens", 1.5, "whole number"),
        ("idempotency_key", 7, "must be a text"),
        ("share", 7, "must be a text"),
        ("metadata", ["order"], "must be texts by name"),
        ("queue", 7, "must be a name"),
        ("owner", "ann", "must be an Owner"),
    ],
)
def test_an_option_of_a_wrong_type_is_named(prepare, option, value, hint):
    with pytest.raises(InvalidInput) as raised:
        prepare(**{option: value})

    assert str(raised.value).startswith(f"{option}: ")
    assert hint in str(raised.value)
    assert [option] == [field.path for field in raised.value.fields]


@pytest.mark.parametrize(
    "metadata",
    [{7: "number"}, {"number": 7}, {"half": "\ud83c"}, {"nul": "\0"}, {"\ud83c": ""}],
)
def test_metadata_that_cannot_be_kept_is_refused(prepare, metadata):
    with pytest.raises(InvalidInput, match=r"^metadata"):
        prepare(metadata=metadata)


class Name(StrEnum):
    ORDER = "order"
    NEW = "new"


class Kind(str, Enum):  # noqa: UP042 - its members print as their names
    RUSH = "rush"


def test_metadata_is_copied_into_plain_texts(prepare):
    given = {Name.ORDER: "A-1042", "state": Name.NEW, Kind.RUSH: Kind.RUSH}
    job = prepare(metadata=MappingProxyType(given))
    given.clear()

    expected = {"order": "A-1042", "state": "new", "rush": "rush"}
    assert expected == orjson.loads(orjson.dumps(job.metadata))


def test_a_misspelt_option_is_answered_with_a_near_one():
    with pytest.raises(TypeError, match="unknown option 'tgas'; did you mean 'tags'"):
        job_options({"tgas": ["x"]})
    with pytest.raises(TypeError, match=r"unknown option 'priority'$"):
        group_options({"priority": 3})


def test_an_input_that_does_not_match_names_the_field(prepare):
    with pytest.raises(InvalidInput, match=r"'greet': input\.name: String should have"):
        prepare({"name": "Annabellalina"})


def test_what_is_not_said_comes_from_the_capability(prepare):
    job = prepare()

    assert ("greet", "polite", 4) == (job.capability, job.queue, job.max_attempts)
    assert (NOON, 0, None, LOCAL) == (
        job.created_at,
        job.priority,
        job.run_at,
        job.owner,
    )
    assert '{"name":"Ann","times":1}' == job.input
    assert job.id.startswith("job_")


@pytest.mark.parametrize(
    "value",
    [{"name": "Ann"}, b'{"name": "Ann"}', Greeting(name="Ann")],
)
def test_an_input_may_be_a_value_a_model_or_json(prepare, value):
    assert '{"name":"Ann","times":1}' == prepare(value).input


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"name": "much too long"}, "input.name"),
        ({"times": 2}, "input.name"),
        ({"name": "Ann", "times": "often"}, "input.times"),
        (b'{"name": ', "input"),
        (b"[]", "input"),
        ('{"name": "Ann"}', "input"),
        ({"name": "\ud800"}, "input.name"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_by_field(prepare, value, path):
    with pytest.raises(InvalidInput, match="capability 'greet'") as raised:
        prepare(value)

    assert [path] == [field.path for field in raised.value.fields]


def test_a_refusal_does_not_repeat_the_input(prepare):
    with pytest.raises(InvalidInput) as raised:
        prepare({"name": "secret words", "times": "secret"})

    assert "secret" not in f"{raised.value} {raised.value.fields}"


def test_an_input_that_cannot_be_written_is_refused():
    submission = Submission(Registry([greet, wave]), FrozenClock(), SeededDice())

    with pytest.raises(InvalidInput, match="capability 'wave'"):
        submission.prepare("wave", {"name": "\ud800"}, Options())


def test_a_queue_that_nobody_serves_is_answered_with_a_near_one(prepare):
    with pytest.raises(InvalidInput, match="did you mean 'polite'"):
        prepare(queue="polish")


def test_an_unknown_capability_is_refused():
    submission = Submission(Registry([greet, wave]), FrozenClock(), SeededDice())

    with pytest.raises(UnknownCapability):
        submission.prepare("great", {}, Options())


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"priority": -1}, "priority"),
        ({"priority": 10}, "priority"),
        ({"priority": 0.5}, "priority"),
        ({"tags": ["t"] * 21}, "tags"),
        ({"tags": [""]}, "tags"),
        ({"tags": ["t" * 201]}, "tags"),
        ({"tags": ["two\nlines"]}, "tags"),
        ({"tags": ["\ud800"]}, "tags"),
        ({"queue": ""}, "queue"),
        ({"queue": "polish"}, "queue"),
        ({"idempotency_key": ""}, "Idempotency-Key"),
        ({"idempotency_key": "k" * 256}, "Idempotency-Key"),
        ({"idempotency_key": "ключ"}, "Idempotency-Key"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 101}, "max_attempts"),
        ({"run_at": ONE, "delay": timedelta(seconds=1)}, "run_at"),
    ],
)
def test_an_option_out_of_bounds_is_refused_by_name(prepare, options, path):
    with pytest.raises(InvalidInput, match=path) as raised:
        prepare(**options)

    assert [path] == [field.path for field in raised.value.fields]


def test_options_at_their_bounds_are_taken(prepare):
    job = prepare(
        priority=9,
        tags=["t" * 200] * 20,
        idempotency_key="k" * 255,
        max_attempts=100,
    )

    assert (9, 20, 100) == (job.priority, len(job.tags), job.max_attempts)


def test_times_are_kept_as_instants_whatever_their_zone(prepare):
    eastward = timezone(timedelta(hours=5, minutes=30))
    job = prepare(run_at=ONE, start_by=ONE.astimezone(eastward), deadline=ONE)

    assert (NOON + HOUR,) * 3 == (job.run_at, job.start_by, job.deadline)


@pytest.mark.parametrize("name", ["run_at", "start_by", "deadline"])
def test_a_time_without_a_zone_is_refused(prepare, name):
    with pytest.raises(InvalidInput, match="no time zone"):
        prepare(**{name: ONE.replace(tzinfo=None)})


def test_a_delay_counts_from_now(prepare):
    assert NOON + 1_500 == prepare(delay=timedelta(seconds=1.5)).run_at


def test_a_job_without_a_key_has_no_hash(prepare):
    assert prepare().body_hash is None


def test_the_same_request_has_the_same_hash(prepare):
    first = prepare({"name": "Ann", "times": 1}, idempotency_key="k")
    again = prepare(b'{"times": 1, "name": "Ann"}', idempotency_key="k")

    assert first.body_hash == again.body_hash
    assert first.id != again.id


@pytest.mark.parametrize(
    "options",
    [
        {"value": {"name": "Bob"}},
        {"queue": "silent"},
        {"priority": 1},
        {"run_at": ONE},
        {"delay": timedelta(seconds=1)},
        {"start_by": ONE},
        {"deadline": ONE},
        {"tags": ["t"]},
        {"max_attempts": 1},
    ],
)
def test_another_request_has_another_hash(prepare, options):
    first = prepare(idempotency_key="k")

    assert first.body_hash != prepare(idempotency_key="k", **options).body_hash


def test_who_asks_is_not_part_of_the_hash(prepare):
    ann = prepare(idempotency_key="k", owner=Owner("acme", "ann"), request_id="r1")
    bob = prepare(idempotency_key="k", owner=Owner("acme", "bob"), request_id="r2")

    assert ann.body_hash == bob.body_hash


def test_times_keep_their_milliseconds_and_stay_before_the_year_10000(
    prepare,
):
    last = datetime.max.replace(tzinfo=UTC)
    milliseconds = [
        instant(ONE + timedelta(milliseconds=each)) % 1_000 for each in range(1_000)
    ]
    delayed = prepare(delay=timedelta(days=9_999_999))

    assert [*range(1_000)] == milliseconds
    assert "9999-12-31T23:59:59.999Z" == rfc3339(instant(last))
    assert instant(last) == delayed.run_at
    assert rfc3339(LATEST) == rfc3339(LATEST + 1)
    assert "0001-01-01T00:00:00.000Z" == rfc3339(-(10**18))
