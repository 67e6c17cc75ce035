"""Other programs' messages become jobs, retries or letters."""

import io
import json

import pytest
import structlog

from backburner import Budget, Queue
from backburner.domain.errors import StoreUnavailable
from backburner.domain.jobs.job import JobState, Owner
from backburner.engine.observability import telemetry
from tests.engine.foreign.acts import (
    ANY_STORE,
    Fickle,
    a_request,
    emptied,
    ended,
    jobs_of,
    letters,
    until,
)


async def test_a_message_of_another_program_becomes_a_job(opened, server):
    backburner = await opened()
    server.put(
        "greetings",
        a_request(
            requestId="r-1",
            userId="u-7",
            callbackUrl="https://tasks.example/hook",
            tokenReservation={"tokensReserved": 70, "windowStartTimestamp": 12345},
        ),
    )

    async def greeted():
        jobs = await jobs_of(backburner, Owner("default", "u-7"))
        greetings = [job for job in jobs if job.capability == "greet"]
        return greetings if greetings and greetings[0].state.is_final else None

    [job] = await until(greeted)
    await emptied(server, "greetings")

    assert (JobState.SUCCEEDED, '"Hello, Ada!"') == (job.state, job.output)
    assert ("greetings", "r-1", 70) == (job.queue, job.request_id, job.tokens)
    assert ("tokenReservation:70:12345",) == job.tags
    assert {"url": "https://tasks.example/hook"} == json.loads(job.callback)
    assert [] == server.dead["greetings"]


@ANY_STORE
async def test_a_request_id_that_may_be_text_is_a_key_and_nothing_else(opened, server):
    backburner = await opened()
    body = a_request(requestId="from Ada, with love")
    server.put("greetings", body, body)
    [job] = await ended(backburner)
    await emptied(server, "greetings")

    assert job.request_id is None
    assert 1 == len(await jobs_of(backburner))


async def test_one_request_id_is_one_job_whoever_sends_it(opened, server):
    backburner = await opened(works=False)
    for _ in range(3):
        server.put("greetings", *[a_request(requestId="r-1")] * 3)
    ticket = await backburner.submit("greet", {"name": "Ada"}, idempotency_key="r-1")
    await backburner.start_worker()
    jobs = await ended(backburner)
    await emptied(server, "greetings")

    assert [ticket.id] == [job.id for job in jobs]


async def test_a_message_that_is_delivered_again_is_the_same_job(opened, server):
    server.mischief.copies = 3
    backburner = await opened()
    server.put("greetings", a_request(), name="m-1")
    server.put("greetings", a_request(), name="m-2")
    await emptied(server, "greetings")

    assert 2 == len(await ended(backburner, 2))


@ANY_STORE
async def test_equal_requests_are_as_many_jobs(opened, server):
    backburner = await opened()
    server.put("greetings", *[a_request()] * 3)

    assert 3 == len(await ended(backburner, 3))


@ANY_STORE
async def test_a_job_goes_to_the_queue_of_its_capability(opened, server):
    backburner = await opened(Fickle().capability())
    server.put("fickle", a_request())
    [job] = await ended(backburner)
    await emptied(server, "fickle", "greetings")

    assert ("greetings", JobState.SUCCEEDED) == (job.queue, job.state)


@ANY_STORE
@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        (b"hello", "MALFORMED_BODY", "not valid JSON"),
        (a_request(prio=1), "INVALID_INPUT", "'prio': is not a field here"),
        (a_request(input={"name": 7}), "INVALID_INPUT", "input.name: "),
        (a_request(input={"name": "boom"}), "INVALID_INPUT", "raised RuntimeError"),
        (a_request(capability="great"), "UNKNOWN_CAPABILITY", "did you mean 'greet'"),
        (a_request(capability="webhook.deliver"), "UNKNOWN_CAPABILITY", "no capab"),
        (a_request(userId="an na"), "INVALID_INPUT", "userId: must be 1 to 200"),
        (a_request(callbackUrl="ftp://x"), "INVALID_INPUT", "callbackUrl: "),
        (
            a_request(callbackUrl="http://127.0.0.1/x"),
            "INVALID_INPUT",
            "callbackUrl: ",
        ),
        (a_request(input={"name": "x" * 200_000}), "BODY_TOO_LARGE", "200000 bytes"),
    ],
)
async def test_what_cannot_be_taken_is_buried_with_the_reason(
    opened, server, body, code, reason
):
    backburner = await opened()
    server.put("greetings", body, a_request())
    [letter] = await letters(server, "greetings")
    [job] = await ended(backburner)
    await emptied(server, "greetings")

    assert ("refused", code, "greetings") == (
        letter["backburner"],
        letter["code"],
        letter["queue"],
    )
    assert reason in letter["reason"]
    assert body[: 96 * 1024].decode() == letter["body"]
    assert JobState.SUCCEEDED == job.state, "the message beside it is not held up"


async def test_another_body_under_a_known_request_id_is_buried(opened, server):
    backburner = await opened()
    server.put(
        "greetings",
        a_request(requestId="r-1"),
        a_request(requestId="r-1", input={"name": "Bob"}),
        a_request(requestId="r-2"),
    )
    [letter] = await letters(server, "greetings")

    assert "IDEMPOTENCY_CONFLICT" == letter["code"]
    assert 2 == len(await ended(backburner, 2))


async def test_over_a_budget_a_message_is_buried_and_does_not_spin(opened, server):
    await opened(budgets=[Budget("user", tokens=50)])
    held = {"tokensReserved": 70, "windowStartTimestamp": "2026-01-01T00:00:00Z"}
    server.put("greetings", a_request(tokenReservation=held))
    [letter] = await letters(server, "greetings")
    await emptied(server, "greetings")

    assert "BUDGET_EXHAUSTED" == letter["code"]
    assert "there is room again in" in letter["reason"]


async def test_where_too_many_wait_a_message_is_buried(opened, server):
    backburner = await opened(
        Fickle().capability(), queues=[Queue("greetings", waiting=1)]
    )
    await backburner.engine.store.pause("greetings", paused=True)
    server.put("fickle", a_request(), a_request())
    [letter] = await letters(server, "fickle")
    await emptied(server, "fickle")

    assert "TOO_MANY_WAITING" == letter["code"]
    assert [JobState.QUEUED] == [job.state for job in await jobs_of(backburner)]


CANARY = "c4n4ry"


@pytest.fixture
def log():
    """What is logged, whatever was set up by tests before."""
    stream = io.StringIO()
    telemetry.configure(level="info", pretty=False, stream=stream)
    yield stream
    structlog.reset_defaults()


@ANY_STORE
async def test_nothing_that_a_producer_wrote_reaches_a_log(opened, server, fickle, log):
    backburner = await opened(fickle.capability())
    told = {"requestId": f"{CANARY} r", "userId": CANARY}
    bad = [
        f"{CANARY}".encode(),
        a_request(**{CANARY: 1}),
        a_request(capability=CANARY),
        a_request(input={"name": {CANARY: 1}}),
        a_request(callbackUrl=f"ftp://{CANARY}"),
        a_request(userId=f"{CANARY} {CANARY}"),
        a_request(requestId=f"{CANARY}é"),
    ]
    stale = {"backburner": "dead-letter", "job": CANARY, "generation": 0}
    server.put("greetings", *bad, json.dumps(stale).encode(), name=CANARY)
    server.put("fickle", a_request(capability="fickle", input=CANARY, **told))
    await letters(server, "greetings", len(bad))
    await letters(server, "fickle")
    await emptied(server, "greetings", "fickle")
    await backburner.stop_worker()
    logged = log.getvalue()

    assert len(bad) == logged.count('"message refused"'), "the log is looked at"
    assert CANARY not in logged


@ANY_STORE
async def test_without_a_key_to_sign_with_nobody_is_called_back(opened, server):
    await opened(webhook_secret="")
    server.put("greetings", a_request(callbackUrl="https://tasks.example/hook"))
    [letter] = await letters(server, "greetings")

    assert "INVALID_INPUT" == letter["code"]
    assert "callbackUrl: webhooks are disabled" in letter["reason"]


@ANY_STORE
async def test_a_message_whose_capability_came_late_is_moved_back_as_it_is(
    opened, server
):
    early = await opened()
    fickle = Fickle()
    fickle.is_mended = True
    body = json.dumps({"capability": "fickle", "input": "late"}).encode()
    server.put("greetings", body, name="m-1")
    [refused] = await letters(server, "greetings")
    await early.stop_worker()
    late = await opened(fickle.capability())
    [letter] = server.dead["greetings"]
    server.put("greetings", letter.body, letter.body)
    jobs = await ended(late)
    await emptied(server, "greetings")

    assert "UNKNOWN_CAPABILITY" == refused["code"]
    assert ['"late"'] == [job.output for job in jobs], "its id went with it: one job"


@ANY_STORE
async def test_while_the_store_cannot_be_had_messages_are_given_back(
    opened, server, monkeypatch
):
    backburner = await opened(works=False)
    store, tries = backburner.engine.store, []
    submit = store.submit

    async def down(jobs):
        tries.append(jobs)
        if len(tries) <= 2:
            raise StoreUnavailable("down")
        return await submit(jobs)

    monkeypatch.setattr(store, "submit", down)
    server.put("greetings", a_request(), b"hello")
    await backburner.start_worker()
    [job] = await ended(backburner)
    await emptied(server, "greetings")

    assert JobState.SUCCEEDED == job.state
    assert 3 == len(tries)
    assert {b"hello"} == {
        json.loads(one.body)["body"].encode() for one in server.dead["greetings"]
    }
