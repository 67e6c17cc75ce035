"""Bulk actions over HTTP: whose jobs they reach, and what they refuse."""

import json
from hashlib import sha256

import pytest

from backburner import Context, PermanentError, capability
from backburner.engine.access.keys import Actor
from backburner.engine.groups import bulk
from backburner.http.routes import jobs

UGLY = {"tag": "x\n\x1b[2J", "metadata": "note=\n\x1b[2J"}
BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
LATER = "2100-01-01T00:00:00Z"


async def later(server, headers):
    body = {"capability": "demo.echo", "input": {}, "run_at": LATER}
    answer = await server.client.post("/v1/jobs", json=body, headers=headers)
    assert 202 == answer.status_code, answer.text
    return answer.json()["id"]


async def state(server, headers, job_id):
    answer = await server.client.get(f"/v1/jobs/{job_id}", headers=headers)
    return answer.json()["state"]


async def done(server, headers, body, reader=None):
    answer = await server.client.post("/v1/jobs/bulk", json=body, headers=headers)
    assert 202 == answer.status_code, answer.text
    ended = await server.client.get(
        answer.headers["location"],
        headers={**(reader or headers), "Prefer": "wait=30"},
    )
    return ended.json()["output"]


@pytest.mark.one_store
async def test_a_bulk_cancel_reaches_only_the_callers_own_jobs(serve):
    server = await serve(keyed=True)
    ann = server.shown(await server.key("acme", user="ann"))
    bob = server.shown(await server.key("acme", user="bob"))
    mine, theirs = [await later(server, who) for who in (ann, bob)]

    named = await done(server, ann, {"action": "cancel", "ids": [theirs]})
    assert (0, 1) == (named["changed"], named["skipped"])
    everything = await done(server, ann, {"action": "cancel", "where": {}})
    assert 1 == everything["changed"]
    assert "cancelled" == await state(server, ann, mine)
    assert "scheduled" == await state(server, bob, theirs)

    refused = await server.client.get("/v1/jobs?user=bob", headers=ann)
    assert 403 == refused.status_code


@pytest.fixture
def after(monkeypatch):
    """Make a bulk action call something after each of its pages, of one job."""
    monkeypatch.setattr(bulk, "PAGE", 1)

    def call(engine, act):
        for name in ("cancel_jobs", "retry_jobs"):
            change = getattr(engine, name)

            async def then(jobs, change=change):
                changed = await change(jobs)
                await act()
                return changed

            monkeypatch.setattr(engine, name, then)

    return call


def revoking(server, key):
    """Return an act that revokes a key."""
    key_id = key.split("_")[2]

    async def revoke():
        await server.backburner.keys.revoke(key_id, Actor("admin", "acme"))

    return revoke


@BOTH
@pytest.mark.parametrize("named", [False, True])
async def test_a_bulk_action_ends_when_its_key_is_revoked(serve, after, named):
    server = await serve(keyed=True)
    key = await server.key("acme", user="ann")
    other = server.shown(await server.key("acme", user="ann"))
    ids = [await later(server, other) for _ in range(3)]
    after(server.backburner.engine, revoking(server, key))

    which = {"ids": ids} if named else {"where": {}}
    body = {"action": "cancel", **which}
    told = await done(server, server.shown(key), body, reader=other)

    assert 1 == told["changed"]
    assert f"the API key {key.split('_')[2]} was revoked" == told["stopped"]
    states = [await state(server, other, job) for job in ids]
    assert ["cancelled", "scheduled", "scheduled"] == sorted(states)


async def test_a_bulk_action_ends_when_its_key_has_expired(serve, after, monkeypatch):
    server = await serve(keyed=True)
    engine = server.backburner.engine
    ends = engine.now() + 600_000
    key = await server.key("acme", user="ann", expires_at=ends)
    other = server.shown(await server.key("acme", user="ann"))
    ids = [await later(server, other) for _ in range(2)]

    async def expire():
        monkeypatch.setattr(engine, "now", lambda: ends)

    after(engine, expire)
    body = {"action": "cancel", "ids": ids}
    told = await done(server, server.shown(key), body, reader=other)

    assert 1 == told["changed"]
    assert told["stopped"].endswith("has expired")


@BOTH
async def test_a_staged_retry_ends_when_its_key_is_revoked(serve, after):
    runs = []

    @capability("test.mend", queue="demo", max_attempts=1)
    async def mend(_ctx: Context, number: int) -> None:
        runs.append(number)
        if len(runs) <= 3:
            raise PermanentError("not yet")

    server = await serve(keyed=True, capabilities=[mend])
    key = await server.key("acme", user="ann")
    other = server.shown(await server.key("acme", user="ann"))
    server.client.headers.update(other)
    for number in range(3):
        await server.ended(await server.submit("test.mend", number))
    after(server.backburner.engine, revoking(server, key))

    body = {"action": "retry", "where": {}, "staged": True}
    told = await done(server, server.shown(key), body, reader=other)

    assert (1, 1) == (told["changed"], len(told["stages"]))
    assert told["stopped"].endswith("was revoked")
    failed = await server.client.get("/v1/jobs/count?state=failed")
    assert 2 == failed.json()["count"]


async def test_without_keys_nothing_ends_a_bulk_action(server, monkeypatch):
    monkeypatch.setattr(bulk, "PAGE", 1)
    for _ in range(3):
        await server.submit(run_at=LATER)
    told = await done(server, {}, {"action": "cancel", "where": {}})

    assert (3, None) == (told["changed"], told["stopped"])


@pytest.mark.one_store
async def test_a_staged_retry_retries_each_job_once(serve):
    runs = []

    @capability("test.mend", queue="demo")
    async def mend(_ctx: Context, number: int) -> None:
        runs.append(number)
        if runs.count(number) == 1 or number in {2, 3, 4}:
            raise PermanentError("not mended")

    server = await serve(capabilities=[mend])
    for number in range(15):
        await server.ended(await server.submit("test.mend", number))

    retry = {"action": "retry", "where": {"state": "failed"}, "staged": True}
    output = await done(server, {}, retry)

    assert output["stopped"] is None
    assert [(1, 0), (7, 3)] == [(s["succeeded"], s["failed"]) for s in output["stages"]]
    assert (15, 3) == (output["changed"], output["skipped"])
    assert 30 == len(runs), "those that failed again are not retried again"


@pytest.mark.one_store
async def test_a_user_has_few_bulk_actions_that_wait(serve, monkeypatch):
    monkeypatch.setattr(bulk, "MOST_WAITING", 2)
    server = await serve(keyed=True, works=False)
    ann = server.shown(await server.key("acme", user="ann"))
    bob = server.shown(await server.key("acme", user="bob"))

    async def ask(who):
        body = {"action": "retry", "where": {}, "staged": True}
        return await server.client.post("/v1/jobs/bulk", json=body, headers=who)

    answers = [await ask(who) for who in (ann, ann, ann, bob)]
    refused = answers[2].json()

    assert [202, 202, 429, 202] == [answer.status_code for answer in answers]
    assert ("TOO_MANY_WAITING", 2) == (refused["code"], refused["cap"])
    [first, _] = (await server.client.get("/v1/jobs", headers=ann)).json()["items"]
    cancelled = await server.client.post(f"{first['links']['cancel']}", headers=ann)
    assert 200 == cancelled.status_code
    assert 202 == (await ask(ann)).status_code


@pytest.mark.one_store
async def test_a_bulk_action_finds_jobs_in_reads_that_are_bounded(serve, monkeypatch):
    for module in (bulk, jobs):
        monkeypatch.setattr(module, "REACH", 3)
    server = await serve()
    for number in range(15):
        tags = ["rare"] if number % 7 == 0 else []
        await server.submit(tags=tags, run_at=LATER)

    output = await done(server, {}, {"action": "cancel", "where": {"tag": "rare"}})
    assert (3, 0) == (output["changed"], output["skipped"])


@pytest.mark.one_store
async def test_the_audit_log_says_how_many_ids_a_bulk_action_has_and_its_job(serve):
    server = await serve(keyed=True)
    ann = server.shown(await server.key("acme", user="ann"))
    ids = [f"job_{'x' * 90}{number}" for number in range(600)]
    bodies = [
        {"action": "cancel", "ids": ids},
        {"action": "retry", "where": UGLY, "staged": True},
    ]
    made = [
        await server.client.post("/v1/jobs/bulk", json=body, headers=ann)
        for body in bodies
    ]
    too_long = {"action": "cancel", "ids": ["x" * 101]}
    refused = await server.client.post("/v1/jobs/bulk", json=too_long, headers=ann)
    entries = await server.backburner.engine.store.audited("acme", before=None, limit=2)

    assert 422 == refused.status_code
    assert ["jobs.bulk_retry", "jobs.bulk_cancel"] == [e.action for e in entries]
    retried, cancelled = [json.loads(entry.target) for entry in entries]
    [first, second] = [answer.json()["id"] for answer in made]
    assert (first, "ann", 600) == (
        *(cancelled["job"], cancelled["user"], cancelled["ids"]),
    )
    assert sha256("\n".join(ids).encode()).hexdigest() == cancelled["sha256"]
    kept = {**UGLY, "metadata": {"note": "\n\x1b[2J"}}
    assert (second, kept, True) == (
        *(retried["job"], retried["where"], retried["staged"]),
    )
    assert entries[0].target.isprintable()


@pytest.mark.parametrize(
    "body",
    [
        {"action": "cancel"},
        {"action": "cancel", "ids": ["job_1"], "where": {}},
        {"action": "cancel", "where": {}, "staged": True},
        {"action": "delete", "where": {}},
        {"action": "retry", "where": {"state": "lost"}},
        {"action": "retry", "where": {"owner": "bob"}},
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_bulk_action_that_is_not_clear_is_refused(standing, body):
    answer = await standing.client.post("/v1/jobs/bulk", json=body)
    assert (422, "INVALID_INPUT") == (answer.status_code, answer.json()["code"])


@pytest.mark.asyncio(loop_scope="module")
async def test_nobody_submits_a_bulk_action_as_a_job(standing):
    body = {"capability": "backburner.bulk", "input": {"action": "cancel"}}
    answer = await standing.client.post("/v1/jobs", json=body)
    assert "UNKNOWN_CAPABILITY" == answer.json()["code"]
