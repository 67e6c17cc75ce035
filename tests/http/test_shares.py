"""Shares over HTTP: who may name one, and what is answered when too many jobs wait."""

import pytest

from backburner.domain.auth.access import ACT, DEFAULT_SCOPES
from backburner.domain.queues.queue import Queue

ECHO = {"capability": "demo.echo", "input": {}}
WAYS_IN = pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/jobs", lambda job: job),
        ("/v1/flows", lambda job: {"steps": [{"name": "one", **job}]}),
        ("/v1/batches", lambda job: {"jobs": [job]}),
        ("/v1/batches", lambda job: {"flows": [{"steps": [{"name": "one", **job}]}]}),
    ],
    ids=["job", "flow", "batch", "flow in a batch"],
)
STORES = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
async def full(serve):
    """A server with a queue in which two jobs of each user may wait, and two do."""
    server = await serve(works=False)
    await server.backburner.engine.store.declare([Queue("demo", waiting=2)])
    await server.submit()
    await server.submit()
    return server


@pytest.fixture
async def keyed(serve):
    return await serve(works=False, keyed=True)


@STORES
@WAYS_IN
async def test_who_has_as_many_waiting_as_may_is_told_how_many(full, path, body):
    refused = await full.client.post(path, json=body(ECHO))

    assert 429 == refused.status_code
    told = refused.json()
    assert ("TOO_MANY_WAITING", True) == (told["code"], told["retryable"])
    assert (2, 2) == (told["depth"], told["cap"])
    assert int(refused.headers["Retry-After"]) == told["retry_after"] > 0
    queues = (await full.client.get("/v1/queues")).json()["items"]
    assert 2 == next(q["queued"] for q in queues if q["name"] == "demo")


async def test_what_was_accepted_before_is_answered_again(full):
    await full.backburner.engine.store.declare([Queue("demo", waiting=3)])
    key = {"Idempotency-Key": "k-1"}
    first = await full.client.post("/v1/jobs", json=ECHO, headers=key)
    again = await full.client.post("/v1/jobs", json=ECHO, headers=key)
    other = await full.client.post("/v1/jobs", json=ECHO)

    assert [202, 202, 429] == [r.status_code for r in (first, again, other)]
    assert "true" == again.headers["Idempotency-Replayed"]


@WAYS_IN
async def test_tokens_and_share_are_kept_with_the_job(server, path, body):
    asked = body({**ECHO, "tokens": 1200, "share": "night shift"})
    sent = await server.client.post(path, json=asked)
    jobs = await server.client.get("/v1/jobs")
    ids = [job["id"] for job in jobs.json()["items"]]
    kept = await server.backburner.engine.store.find(ids)

    assert 202 == sent.status_code, sent.text
    assert (1200, "night shift") in [(job.tokens, job.share) for job in kept]


@pytest.mark.parametrize(
    ("field", "value"),
    [("tokens", -1), ("tokens", 10**10), ("tokens", "7"), ("share", "")],
)
async def test_what_makes_no_sense_is_refused(server, field, value):
    refused = await server.client.post("/v1/jobs", json={**ECHO, field: value})

    assert 422 == refused.status_code
    assert [field] == [error["path"] for error in refused.json()["errors"]]


@WAYS_IN
async def test_a_key_may_name_no_other_share_than_its_own(keyed, path, body):
    key = keyed.shown(await keyed.key("acme", *DEFAULT_SCOPES, user="ann"))
    other, own = ({**ECHO, "share": name} for name in ("bob", "ann"))
    refused = await keyed.client.post(path, json=body(other), headers=key)
    taken = await keyed.client.post(path, json=body(own), headers=key)

    assert (403, "FORBIDDEN") == (refused.status_code, refused.json()["code"])
    assert 202 == taken.status_code


async def test_a_key_that_may_act_for_others_may_name_their_shares(keyed):
    key = keyed.shown(await keyed.key("acme", *DEFAULT_SCOPES, ACT))
    asked = {**ECHO, "share": "bob"}
    taken = await keyed.client.post("/v1/jobs", json=asked, headers=key)

    assert 202 == taken.status_code


async def test_a_repeat_with_another_share_is_another_request(server):
    key = {"Idempotency-Key": "k-2"}
    asked = {**ECHO, "share": "one"}
    await server.client.post("/v1/jobs", json=asked, headers=key)
    asked["share"] = "two"
    refused = await server.client.post("/v1/jobs", json=asked, headers=key)

    assert "IDEMPOTENCY_CONFLICT" == refused.json()["code"]


@STORES
async def test_a_quote_refuses_what_a_submit_refuses(full):
    refused = await full.client.post("/v1/quote", json=ECHO)

    assert (429, "TOO_MANY_WAITING") == (refused.status_code, refused.json()["code"])
    assert (2, 2) == (refused.json()["depth"], refused.json()["cap"])


async def test_a_quote_refuses_another_share_too(keyed):
    headers = keyed.shown(await keyed.key("acme", *DEFAULT_SCOPES, user="ann"))
    asked = {**ECHO, "share": "bob"}
    answers = [
        await keyed.client.post(path, json=asked, headers=headers)
        for path in ("/v1/jobs", "/v1/quote")
    ]

    assert [403, 403] == [answer.status_code for answer in answers]


async def test_a_quote_below_the_cap_is_given(full):
    await full.backburner.engine.store.declare([Queue("demo", waiting=3)])
    response = await full.client.post("/v1/quote", json=ECHO)

    assert 200 == response.status_code
