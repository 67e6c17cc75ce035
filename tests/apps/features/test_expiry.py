"""URLs, records and results expire; the clock is moved, nobody waits."""

from datetime import timedelta

import pytest

from backburner.engine.blobs.payloads import Sweeper
from backburner.wiring import _upkeep
from backburner_apps.features.results import delete_expired
from backburner_apps.features.tables import results
from tests.apps.features.conftest import POSTING

A_MINUTE, AN_HOUR, A_DAY = (
    timedelta(minutes=1),
    timedelta(hours=1),
    timedelta(days=1),
)


async def tidy_up(backburner):
    """Delete what is old by the moved clock, as the loops do every minute."""
    keep = _upkeep(backburner.settings).retention
    await backburner.engine.store.prune(
        keep=keep, now=backburner.engine.now(), limit=100
    )
    await Sweeper(
        backburner.engine.store, backburner.engine.payloads, backburner._parts.clock
    ).expire()


async def test_a_url_works_for_an_hour_and_a_new_one_after_that(start, later):
    features = await start()
    job_id = (await features.submit())["job_id"]
    first = (await features.ended(job_id))["result_url"]

    later(AN_HOUR - A_MINUTE)
    in_time = await features.client.get(first)
    later(2 * A_MINUTE)
    too_late = await features.client.get(first)
    again = (await features.ended(job_id))["result_url"]
    fetched = await features.client.get(again)

    assert (200, 403, 200) == (
        in_time.status_code,
        too_late.status_code,
        fetched.status_code,
    )
    assert in_time.content == fetched.content


@pytest.mark.parametrize(
    ("mishap", "days", "settings"),
    [
        pytest.param("ok", 7, {}, id="completed"),
        pytest.param("misfit", 14, {}, id="failed"),
        pytest.param("ok", 2, {"keep_days": 2}, id="as configured"),
    ],
)
async def test_records_and_results_expire(start, later, mishap, days, settings):
    features = await start(**settings)
    posting = f"{POSTING} [[mock: {mishap}]]"
    job_id = (await features.submit(posting=posting))["job_id"]
    await features.ended(job_id)
    kept = len(await features.blobs())

    later(timedelta(days=days) - AN_HOUR)
    in_time = await features.status(job_id)
    later(AN_HOUR)
    too_late = await features.status(job_id)
    listed = (await features.client.get("/api/jobs")).json()["items"]
    later(A_DAY)
    await tidy_up(features.backburner)
    deleted = await features.backburner.transact(lambda tx: delete_expired(tx, 10))

    assert (200, 404) == (in_time.status_code, too_late.status_code)
    assert [] == listed
    assert kept == deleted == (mishap == "ok")
    assert [] == await features.rows(results)
    assert [] == await features.blobs()
    assert [] == await features.backburner.engine.store.find([f"job_{job_id}"])
