"""Signals and questions over HTTP: who may send what, and what is answered."""

import pytest

from backburner import Context, Owner, capability

ON_BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)


@capability("test.waits", queue="demo")
async def waits(ctx: Context, _value: dict[str, int]) -> object:
    """Wait for a signal."""
    return await ctx.wait("paid", timeout=3600)


@capability("test.asks", queue="demo")
async def asks(ctx: Context, _value: dict[str, int]) -> str:
    """Ask a person."""
    return str(await ctx.ask_person("Send it?", choices=["yes", "no"], name="send"))


async def waiting(server, job, owner=None):
    """Return a job when it waits."""
    named = {} if owner is None else {"owner": owner}
    found = await server.backburner.engine.find(job["id"], **named)
    async for event in server.backburner.engine.events(found):
        if event.type == "job.waiting":
            break


@ON_BOTH
async def test_waits_and_signals_are_listed_with_the_steps(serve):
    server = await serve(capabilities=[waits])
    job = await server.submit("test.waits")
    await waiting(server, job)
    path = f"/v1/jobs/{job['id']}"
    await server.client.post(f"{path}/signals/other", json="x" * 2_000)
    before = (await server.client.get(f"{path}/steps")).json()["waits"]
    await server.client.post(f"{path}/signals/paid", json={"amount": 5})
    await server.ended(job)
    [paid, other] = (await server.client.get(f"{path}/steps")).json()["waits"]

    assert [("paid", "open"), ("other", "signalled")] == [
        (wait["name"], wait["state"]) for wait in before
    ]
    assert ("signal", "signalled", {"amount": 5}) == (
        *(paid["reason"], paid["state"], paid["value"]),
    )
    assert paid["asked_at"] < paid["decided_at"] < paid["until"]
    assert (2_002, None, None) == (other["size"], other["value"], other["asked_at"])


@ON_BOTH
async def test_a_signal_is_stored_once_and_starts_the_job(serve):
    server = await serve(capabilities=[waits])
    job = await server.submit("test.waits")
    await waiting(server, job)
    job = (await server.client.get(f"/v1/jobs/{job['id']}")).json()
    path = f"/v1/jobs/{job['id']}/signals"
    listed = (await server.client.get("/v1/jobs", params={"state": "waiting"})).json()
    queues = (await server.client.get("/v1/queues")).json()["items"]

    async def post(name, **more):
        return await server.client.post(f"{path}/{name}", **more)

    too_large = [await post("other", json="x" * n) for n in (70_000, 200_000)]
    unnamed = await post("x" * 201, json=1)
    plain = await post("paid", content=b"{}")
    other = await post("other", json={"a": 1})
    same = await post("other", json={"a": 1})
    differs = await post("other", json={"a": 2})
    first = await post("paid", json={"amount": 5})
    ended = await server.ended(job)
    over = await post("paid", json={"amount": 5})
    nobody = await server.client.post("/v1/jobs/job_x/signals/paid", json=1)

    assert "waiting" == job["state"]
    assert {"reason": "signal", "name": "paid", "until": job["run_at"]} == job["wait"]
    assert [job["id"]] == [found["id"] for found in listed["items"]]
    assert 1 == {q["name"]: q["suspended"] for q in queues}["demo"]
    assert [413, 413] == [answer.status_code for answer in too_large]
    assert "SIGNAL_TOO_LARGE" == too_large[0].json()["code"]
    assert [422, 415] == [unnamed.status_code, plain.status_code]
    answers = (other, same, differs, over, nobody)
    assert [201, 200, 409, 409, 404] == [r.status_code for r in answers]
    assert "SIGNAL_CONFLICT" == differs.json()["code"]
    assert (201, {"job_id": job["id"], "name": "paid"}) == (
        *(first.status_code, first.json()),
    )
    assert ("succeeded", {"amount": 5}, None) == (
        *(ended["state"], ended["output"], ended["wait"]),
    )


async def test_it_is_explained_what_a_job_waits_for(serve):
    server = await serve(capabilities=[waits, asks])
    jobs = [await server.submit(name) for name in ("test.waits", "test.asks")]
    explained = []
    for job in jobs:
        await waiting(server, job)
        answer = await server.client.get(f"/v1/jobs/{job['id']}/waiting")
        explained.append(answer.json())

    assert ["signal", "question"] == [each["reason"] for each in explained]
    assert [True, False] == [each["until"] is not None for each in explained]


@ON_BOTH
async def test_others_find_neither_job_nor_question(serve):
    server = await serve(capabilities=[waits, asks], keyed=True)
    mine = await server.key("acme", user="ann")

    async def call(key, method, where, **more):
        shown = {"Authorization": f"Bearer {key}", **more.pop("headers", {})}
        return await server.client.request(method, where, headers=shown, **more)

    asked = {"capability": "test.asks", "input": {}}
    job = (await call(mine, "POST", "/v1/jobs", json=asked)).json()
    path = f"/v1/jobs/{job['id']}"
    await waiting(server, job, Owner("acme", "ann"))
    answer = f"{path}/questions/send/answer"
    answers = await server.key("acme", "questions:answer")
    for key in (await server.key("acme", user="bob"), await server.key("evil")):
        assert 404 == (await call(key, "POST", answer, json="yes")).status_code
        told = await call(key, "POST", f"{path}/signals/send", json="yes")
        assert 404 == told.status_code
        assert [] == (await call(key, "GET", "/v1/questions")).json()["items"]
    for key in (mine, answers):
        [found] = (await call(key, "GET", "/v1/questions")).json()["items"]
        assert ("Send it?", ["yes", "no"], answer) == (
            *(found["question"], found["choices"], found["links"]["answer"]),
        )
    assert 403 == (await call(answers, "GET", path)).status_code
    assert 422 == (await call(answers, "POST", answer, json="maybe")).status_code
    assert 201 == (await call(answers, "POST", answer, json="yes")).status_code
    ended = await call(mine, "GET", path, headers={"Prefer": "wait=30"})
    assert "yes" == ended.json()["output"]
    assert 409 == (await call(mine, "POST", answer, json="yes")).status_code
    entries = await server.backburner.engine.store.audited(
        "acme", before=None, limit=10
    )
    told = [e for e in entries if e.action == "question.answered"]
    assert told
    assert {f"{job['id']}/send"} == {entry.target for entry in told}


@ON_BOTH
async def test_a_signal_does_not_answer_a_question(serve):
    server = await serve(capabilities=[waits, asks], works=False)
    job = await server.submit("test.asks")
    path = f"/v1/jobs/{job['id']}"
    early = await server.client.post(f"{path}/signals/send", json="maybe")
    await server.backburner.start_worker()
    await waiting(server, job)
    signal = await server.client.post(f"{path}/signals/send", json="yes")
    [question] = (await server.client.get("/v1/questions")).json()["items"]
    answer = question["links"]["answer"]
    answers = [
        await server.client.post(answer, json=value) for value in ("maybe", "no")
    ]
    ended = await server.ended(job)

    assert [201, 409] == [early.status_code, signal.status_code]
    assert "send an answer" in signal.json()["detail"]
    assert [422, 201] == [each.status_code for each in answers]
    assert "no" == ended["output"]


@pytest.mark.parametrize("value", ["maybe", "x" * 70_000, "yes"])
async def test_only_answers_to_open_questions_are_in_the_audit_log(serve, value):
    server = await serve(capabilities=[waits, asks])
    job = await server.submit("test.asks")
    await waiting(server, job)
    path = f"/v1/jobs/{job['id']}/questions"
    forged = "x%0A2026-01-01%20admin%20key.created%1b%5b2J%E2%80%AEevil"
    for name in (forged, "other"):
        told = await server.client.post(f"{path}/{name}/answer", json="yes")
        assert told.status_code in {409, 422}
    await server.client.post(f"{path}/send/answer", json=value)
    entries = await server.backburner.engine.store.audited(
        "default", before=None, limit=10
    )

    expected = [f"{job['id']}/send"] if value == "yes" else []
    assert expected == [entry.target for entry in entries]
