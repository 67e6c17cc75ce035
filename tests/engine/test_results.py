"""What a ticket's `result` returns: by a capability typed, by a name plain JSON."""

from datetime import date, timedelta

import pytest
from pydantic import BaseModel, Field

from backburner import Context, ResultMismatch, Snooze, capability


class Report(BaseModel):
    day: date
    total: int = Field(alias="sumTotal")


class Renamed(BaseModel):
    total: int = Field(serialization_alias="sum")


@capability("report")
async def report(_ctx: Context, value: date) -> Report:
    return Report(day=value, sumTotal=3)


@capability("ask-for-a-report")
async def ask(ctx: Context, value: date) -> str:
    ticket = await ctx.submit(report, value)
    return type(await ticket.result()).__name__


@capability("renamed")
async def renamed(_ctx: Context, value: int) -> Renamed:
    return Renamed(total=value)


@capability("nothing")
async def nothing(_ctx: Context, value: int) -> None:
    del value


@capability("late")
async def late(ctx: Context, value: int) -> int | Snooze:
    SEEN.append(ctx.job.id)
    return value if len(SEEN) > 4 else Snooze(timedelta(milliseconds=1))


SEEN = []
DAY = date(2030, 1, 31)
REPORT = Report(day=DAY, sumTotal=3)


async def test_a_result_has_the_type_that_its_capability_declares(working):
    backburner = await working(report, ask, nothing)
    one = await backburner.submit(report, DAY)
    many = await backburner.submit_many(report, [DAY, DAY])
    inside = await backburner.submit(ask, DAY)
    none = await backburner.submit(nothing, 1)

    assert [REPORT] * 3 == [await ticket.result() for ticket in (one, *many)]
    assert "Report" == await inside.result()
    assert await none.result() is None


async def test_a_result_by_name_is_plain_data(working):
    backburner = await working(report)
    ticket = await backburner.submit("report", "2030-01-31")

    assert {"day": "2030-01-31", "sumTotal": 3} == await ticket.result()


async def test_an_output_that_cannot_be_read_back_is_still_there(working):
    ticket = await (await working(renamed)).submit(renamed, 3)

    with pytest.raises(ResultMismatch, match=r"ticket\.job\(\)"):
        await ticket.result()
    assert '{"sum":3}' == (await ticket.job()).output


async def test_of_a_very_long_history_the_newest_attempts_are_seen(
    working, ended, monkeypatch
):
    monkeypatch.setattr("backburner.engine.history.PAGE", 2)
    backburner = await working(late)
    job = await ended(await backburner.submit(late, 3))

    whole = await backburner.engine.attempts(job)
    monkeypatch.setattr("backburner.engine.engine.HISTORY", 5)
    newest = await backburner.engine.attempts(job)

    assert ["scheduled"] * 4 + ["succeeded"] == [each.outcome for each in whole]
    assert whole[-2:] == newest
