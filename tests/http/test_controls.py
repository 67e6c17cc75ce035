"""Jobs, workers and schedules that a caller changes over HTTP."""

import asyncio
import json
from dataclasses import replace

import pytest

from backburner import Budget, Context, capability
from backburner.domain.auth.access import SCOPES
from backburner.engine.maintenance import scheduler
from backburner.testing.broker.acts import pause

LATER = "2100-01-01T00:00:00Z"


async def changed(server, job, **body):
    return await server.client.patch(f"/v1/jobs/{job['id']}", json=body)


async def audited(server, limit=1):
    store = server.backburner.engine.store
    entries = await store.audited("default", before=None, limit=limit)
    return [(entry.action, entry.target) for entry in entries]


async def test_a_job_is_reprioritised_rescheduled_and_started(server):
    job = await server.submit(run_at=LATER)

    later = await changed(server, job, priority=7, run_at="2101-01-01T00:00:00Z")
    [(action, target)] = await audited(server)
    await changed(server, job, priority=5)
    told = await server.client.get(f"/v1/jobs/{job['id']}/history")
    started = await changed(server, job, run_at=None)
    [(_, freed), (_, raised)] = await audited(server, limit=2)
    ended = await server.ended(job)

    assert (200, 7, "scheduled") == (
        later.status_code,
        later.json()["priority"],
        later.json()["state"],
    )
    assert "2101-01-01T00:00:00.000Z" == later.json()["run_at"]
    assert "job.changed" == action
    assert {
        "job": job["id"],
        "priority": 7,
        "run_at": "2101-01-01T00:00:00.000Z",
    } == json.loads(target), "what it was changed to"
    assert {"job": job["id"], "priority": 5} == json.loads(raised)
    assert {"job": job["id"], "run_at": None} == json.loads(freed)
    assert {"priority": 5} == told.json()["items"][2]["data"]
    assert started.json()["state"] in {"queued", "running", "succeeded"}
    assert "succeeded" == ended["state"]
    assert 409 == (await changed(server, job, priority=1)).status_code
    assert 409 == (await changed(server, job, run_at=LATER)).status_code


async def test_a_cancel_is_in_the_audit_log_once(serve):
    server = await serve(works=False)
    job = await server.submit()
    answers = [await server.client.post(job["links"]["cancel"]) for _ in range(2)]
    other = await server.client.post("/v1/jobs/job_9/cancel")

    assert [200, 200, 404] == [one.status_code for one in (*answers, other)]
    assert [("job.cancelled", job["id"])] == await audited(server, limit=9)


@pytest.mark.one_store
async def test_a_change_that_is_not_clear_or_not_the_callers_is_refused(serve):
    server = await serve(keyed=True, works=False)
    ann = server.shown(await server.key("acme", user="ann"))
    bob = server.shown(await server.key("acme", user="bob"))
    reader = server.shown(await server.key("acme", "jobs:read", user="ann"))
    server.client.headers.update(ann)
    job = await server.submit(start_by="2099-01-01T00:00:00Z")
    path = f"/v1/jobs/{job['id']}"

    for body in ({}, {"priority": 10}, {"run_at": "soon"}, {"queue": "x"}):
        assert 422 == (await changed(server, job, **body)).status_code, body
    assert 422 == (await changed(server, job, run_at=LATER)).status_code
    for caller, status in ((bob, 404), (reader, 403)):
        answer = await server.client.patch(path, json={"priority": 1}, headers=caller)
        assert status == answer.status_code
    assert 0 == (await server.client.get(path)).json()["priority"]


async def test_a_drained_worker_claims_nothing_until_it_is_resumed(server):
    worker = server.backburner._worker
    path = f"/v1/workers/{worker.id}"

    drained = await server.client.post(f"{path}/drain")
    await server.until(lambda: worker._is_draining)
    job = await server.submit()
    why = await server.client.get(f"/v1/jobs/{job['id']}/waiting")
    echo = {"capability": "demo.echo", "input": {}}
    quote = (await server.client.post("/v1/quote", json=echo)).json()
    [listed] = (await server.client.get("/v1/workers")).json()["items"]
    entries = await audited(server)
    resumed = await server.client.post(f"{path}/resume")
    ended = await server.ended(job)

    assert drained.json()["draining"]
    assert listed["draining"]
    assert "no_worker" == why.json()["reason"]
    assert (0, None) == (quote["slots"], quote["start"]), "nobody will start it"
    assert [("worker.drained", worker.id)] == entries
    assert not resumed.json()["draining"]
    assert "succeeded" == ended["state"]
    assert 404 == (await server.client.post("/v1/workers/w_9/drain")).status_code


async def test_a_worker_says_what_it_runs_and_how_it_is(server):
    job = await server.submit("test.wait")
    worker = server.backburner._worker
    listed = {"running": 0}
    async with asyncio.timeout(60):
        while not listed["running"]:  # until the first heartbeat during the job
            await pause()
            [listed] = (await server.client.get("/v1/workers")).json()["items"]
    of_worker = f"/v1/jobs?worker={worker.id}"
    running = (await server.client.get(of_worker)).json()["items"]
    others = (await server.client.get("/v1/jobs?worker=w_9")).json()["items"]
    mixed = await server.client.get(f"{of_worker}&state=running,queued")
    server.release.set()
    ended = await server.ended(job)

    assert (1, worker.id) == (listed["running"], listed["id"])
    assert 0 <= listed["event_loop_lag_seconds"]
    assert 10_000_000 < listed["memory_bytes"]
    assert [job["id"]] == [one["id"] for one in running]
    assert (worker.id, None) == (running[0]["worker"], ended["worker"])
    assert [] == others
    assert 422 == mixed.status_code
    assert "running" in mixed.text


async def test_a_change_or_schedule_that_is_refused_is_not_in_the_audit_log(serve):
    @capability("test.dear", queue="demo", tokens=20)
    async def dear(_ctx: Context, _value: dict[str, int] | str) -> None:
        pass

    server = await serve(works=False, body_limit=1024 * 1024, capabilities=[dear])
    store = server.backburner.engine.store
    soon = await server.submit()
    ended = await server.submit()
    await server.client.post(ended["links"]["cancel"])
    asked = {"capability": "test.dear", "cron": "0 3 * * *", "input": {}}
    path = "/v1/schedules/nightly"
    large = {**asked, "input": "x" * 64 * 1024}
    await server.client.put("/v1/schedules/mine", json=asked)
    _, [saved] = await store.schedules()
    await store.plan([replace(saved, name="nightly", owner=None, input=None)])
    before = await audited(server, limit=9)

    refused = [
        await changed(server, ended, priority=1),
        await server.client.put(path, json=asked),
        await server.client.put("/v1/schedules/a", json={**asked, "capability": "x"}),
        await server.client.put("/v1/schedules/large", json=large),
    ]
    same = await changed(server, soon, priority=0)
    await store.put_budgets([Budget("user", tokens=1)])
    full = await server.client.post("/v1/schedules/mine/run")

    assert [409, 409, 404, 422] == [answer.status_code for answer in refused]
    assert (200, 429) == (same.status_code, full.status_code)
    assert before == await audited(server, limit=9)


async def test_a_schedule_is_saved_run_paused_and_deleted(server):
    path, asked = "/v1/schedules/team/nightly", {"capability": "demo.echo"}
    asked |= {"cron": "0 3 * * *", "input": {"a": 1}, "timezone": "Europe/Berlin"}

    saved = await server.client.put(path, json=asked)
    run = await server.client.post(f"{path}/run")
    ended = await server.ended(run.json())
    paused = await server.client.post(f"{path}/pause")
    [listed] = (await server.client.get("/v1/schedules")).json()["items"]
    resumed = await server.client.post(f"{path}/resume")
    deleted = await server.client.delete(path)

    assert (200, False, False, {"a": 1}) == (
        saved.status_code,
        saved.json()["declared"],
        saved.json()["paused"],
        saved.json()["input"],
    )
    assert ("succeeded", {"a": 1}) == (ended["state"], ended["output"])
    assert "schedule:team/nightly" in ended["tags"]
    assert paused.json()["paused"]
    assert listed["paused"]
    assert [] == listed["next_ticks"]
    assert not resumed.json()["paused"]
    first, *later = ticks = resumed.json()["next_ticks"]
    assert (resumed.json()["next_at"], 2) == (first, len(later))
    assert sorted(set(ticks)) == ticks
    assert 204 == deleted.status_code
    assert 404 == (await server.client.post(f"{path}/run")).status_code
    actions = ["deleted", "resumed", "paused", "run", "set"]
    assert [(f"schedule.{one}", "team/nightly") for one in actions] == await audited(
        server, 5
    )


@pytest.mark.one_store
async def test_a_schedule_that_cannot_be_is_refused(server):
    asked = {"capability": "demo.echo", "cron": "0 3 * * *", "input": {}}
    for odd in (
        {"cron": "often"},
        {"timezone": "Mars/Olympus"},
        {"missed": "never"},
        {"every": 5},
    ):
        answer = await server.client.put("/v1/schedules/x", json={**asked, **odd})
        assert 422 == answer.status_code, odd
    unknown = {**asked, "capability": "nobody.knows"}
    answer = await server.client.put("/v1/schedules/x", json=unknown)
    assert 404 == answer.status_code


@pytest.mark.one_store
async def test_a_schedule_of_another_tenant_needs_tenants_act(serve):
    server = await serve(keyed=True, works=False)
    platform = server.shown(await server.key("default", *SCOPES))
    scopes = SCOPES - {"tenants:act"}
    without = server.shown(await server.key("default", *scopes))
    path, asked = "/v1/schedules/theirs", {"capability": "demo.echo"}
    asked |= {"cron": "0 3 * * *", "input": {"secret": 1}}
    in_acme = {**platform, "X-Tenant-Id": "acme"}
    await server.client.put(path, json=asked, headers=in_acme)

    answers = [
        await server.client.post(f"{path}/run", headers=without),
        await server.client.put(path, json=asked, headers=without),
        await server.client.delete(path, headers=without),
    ]
    listed = [
        (await server.client.get("/v1/schedules", headers=who)).json()["items"][0]
        for who in (without, platform)
    ]
    paused = await server.client.post(f"{path}/pause", headers=without)
    run = await server.client.post(f"{path}/run", headers=platform)
    deleted = await server.client.delete(path, headers=platform)
    log = await server.client.get("/v1/audit", headers=in_acme)
    store = server.backburner.engine.store
    ours = await store.audited("default", before=None, limit=4)

    assert [403] * 3 == [answer.status_code for answer in answers]
    assert all("tenants:act" in answer.json()["detail"] for answer in answers)
    assert [None, {"secret": 1}] == [schedule["input"] for schedule in listed]
    assert [200, 202, 204] == [one.status_code for one in (paused, run, deleted)]
    said = [f"schedule.{one}" for one in ("deleted", "run", "paused", "set")]
    assert said == [entry["action"] for entry in log.json()["items"]]
    assert said == [entry.action for entry in ours]


async def test_saved_schedules_are_limited_in_size_and_number(serve, monkeypatch):
    server = await serve(works=False, body_limit=1024 * 1024)
    monkeypatch.setattr(scheduler, "MOST_SAVED", 2)
    asked = {"capability": "demo.echo", "cron": "*/30 * * * * *", "input": {}}
    large = {**asked, "input": {"text": "x" * 64 * 1024}}

    async def saved(name, body):
        answer = await server.client.put(f"/v1/schedules/{name}", json=body)
        return answer.status_code, answer.text

    refused, why = await saved("a", large)
    done = [(await saved(name, asked))[0] for name in ("a", "b", "c", "b")]
    _, full = await saved("c", asked)

    assert (422, [200, 200, 422, 200]) == (refused, done)
    assert "64 KiB" in why
    assert "at most 2 schedules" in full


async def test_a_saved_schedule_fires_at_its_time(server):
    engine = server.backburner.engine
    asked = {"capability": "demo.echo", "cron": "0 3 * * *", "input": {"b": 2}}
    await server.client.put("/v1/schedules/soon", json=asked)
    now, [state] = await engine.store.schedules()
    await engine.store.pause_schedule("soon", paused=True, next_at=now)
    await engine.store.pause_schedule("soon", paused=False, next_at=now)

    await engine.scheduler.fire()

    [job] = (await server.client.get("/v1/jobs?tag=schedule:soon")).json()["items"]
    _, [fired] = await engine.store.schedules()
    assert {"b": 2} == (await server.ended(job))["output"]
    assert (now, state.next_at) == (fired.last_at, fired.next_at)
