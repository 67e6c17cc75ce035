"""Which troubles are tried again, how often and when: by a clock of the test's own."""

from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import orjson
import pytest

from backburner.ai.mock import Mock
from backburner.domain.jobs.job import JobState, Need
from backburner.domain.jobs.transitions import Limits
from backburner.domain.webhooks.address import Reach
from backburner.engine.models.asking import Providers
from backburner.engine.registry import Registry
from backburner.engine.run.attempt import Attempt
from backburner.engine.run.runtime import Runtime
from backburner.engine.run.settler import Settler
from backburner.engine.webhooks.callback_sender import CallbackSender
from backburner.ports.egress import Answer, Silence
from backburner.testing.doubles import FakeContext, FrozenClock
from backburner.testing.samples import a_claim
from backburner_apps.ai.callback import callback
from backburner_apps.ai.parsing import parse_task

MINUTE = 60_000
ANSWER = {"result": {}, "openaiMetadata": {}}
SENTENCE = b'{"naturalLanguage": "buy milk"}'.decode()
RETURN = (
    '{"callbackUrl": "http://tasks:80/hook", "userId": "u", "aiServiceRequestId": "f"}'
)


class Roll:
    """Dice that always fall the same way."""

    def __init__(self, share):
        self._share = share

    def roll(self):
        return self._share


class Post:
    """An `Egress` that answers by a list, the last again and again."""

    def __init__(self, *answers):
        self._answers = chain(answers, repeat(answers[-1]))
        self.sent = []

    async def post(self, url, *, headers, body):
        self.sent.append((url, headers, body))
        return next(self._answers)


async def run(
    capability, claim, *, roll=0.0, script=(), post=None, seconds=60.0, **ports
):
    """Run a job to its end; return every change of it."""
    clock, changes = FrozenClock(), []
    anything: Any = None
    reach = Reach.read(["tasks"])
    runtime = Runtime(
        store=anything,
        notifier=anything,
        clock=clock,
        dice=Roll(roll),
        faults=anything,
        registry=Registry([capability]),
        submit=anything,
        engine=anything,
        output_sink=FakeContext(),
        providers=Providers([Mock(clock, script=script)], clock, seconds),
        callback_sender=CallbackSender(reach, b"m" * 32, clock, post),
        **ports,
    )
    settler = Settler(runtime, anything, Limits(), anything)
    attempts = capability.retry.max_attempts
    claim = claim._replace(capability=capability.name, max_attempts=attempts)
    while True:
        attempt = Attempt(claim, capability)
        outcome = await attempt.run(runtime)
        change = settler.decide(attempt, outcome)
        changes.append(change)
        if change.to is not JobState.SCHEDULED:
            return changes
        count = claim.attempt if change.attempt is None else change.attempt
        waited = claim.throttled if change.throttled is None else change.throttled
        claim = claim._replace(attempt=count + 1, throttled=waited)


def delays(changes):
    return [c.run_at - c.at for c in changes if c.run_at is not None]


def asked(*script, **more):
    return run(parse_task, a_claim(input=SENTENCE), script=script, **more)


def told(*answers, state=JobState.SUCCEEDED, output=ANSWER, traceparent=None, **more):
    done = state is JobState.SUCCEEDED
    output = orjson.dumps(output).decode() if done else None
    error = None if done else {"code": "AI_REJECTED", "message": "no"}
    need = Need("capability", "job_0", state, output, error)
    post = Post(*answers)
    claim = a_claim(
        input=RETURN,
        given=[need],
        request_id="req_1",
        needs=1,
        traceparent=traceparent,
    )
    return post, run(callback, claim, post=post, **more)


@pytest.mark.parametrize("trouble", ["429", "500", "502", "503", "drop"])
@pytest.mark.parametrize(("roll", "waits"), [(0.0, [1000, 2000]), (0.5, [1500, 2500])])
async def test_passing_troubles_of_a_model_have_three_attempts(trouble, roll, waits):
    changes = await asked(*[trouble] * 9, roll=roll)

    assert waits == delays(changes), "min(1 s * 2^n, 30 s) + U(0, 1 s)"
    assert [JobState.SCHEDULED] * 2 + [JobState.FAILED] == [c.to for c in changes]


async def test_a_model_that_hangs_has_three_attempts():
    changes = await asked(*["hang"] * 3, seconds=0.01)

    assert (3, "AI_TIMEOUT") == (len(changes), changes[-1].error.code)


@pytest.mark.parametrize("trouble", ["400", "401", "403", "refuse", "too-long"])
async def test_troubles_that_would_come_again_end_it_at_once(trouble):
    [change] = await asked(trouble)

    assert (JobState.FAILED, False) == (change.to, change.error.retryable)


async def test_a_429_that_says_when_waits_that_long_and_costs_no_attempt():
    changes = await asked(*["429 retry-after=120"] * 4, "500", "500", "ok")

    assert [120_000] * 4 + [1000, 2000] == delays(changes)
    assert JobState.SUCCEEDED is changes[-1].to, "three attempts were left"


async def test_such_waits_are_ten_minutes_in_all_at_most():
    changes = await asked(*["429 retry-after=200"] * 9)

    assert [200_000] * 3 == delays(changes)
    assert 10 * MINUTE == sum(delays(changes))
    assert (JobState.FAILED, "EXPIRED") == (changes[-1].to, changes[-1].error.code)


async def test_without_its_patience_it_would_wait_for_longer():
    patient = replace(parse_task, patience=None)
    claim = a_claim(input=SENTENCE)
    changes = await run(patient, claim, script=["429 retry-after=200"] * 9)

    assert [200_000] * 9 == delays(changes), "Backburner's own limit is a day"


@pytest.mark.parametrize(
    "answer",
    [
        *(Answer(status, {}) for status in (500, 502, 503, 504, 429)),
        *Silence,
    ],
)
async def test_a_callback_has_three_attempts_unless_it_is_refused(answer):
    post, running = told(answer)
    changes = await running

    assert [1000, 2000] == delays(changes)
    assert JobState.FAILED is changes[-1].to
    assert 3 == len(post.sent)
    assert 1 == len({headers["webhook-id"] for _, headers, _ in post.sent})
    assert {"req_1"} == {headers["X-Request-ID"] for _, headers, _ in post.sent}


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 410, 422])
async def test_a_callback_that_is_refused_is_not_repeated(status):
    post, running = told(Answer(status, {}))
    [change] = await running

    assert (JobState.FAILED, 1) == (change.to, len(post.sent))


async def test_a_receiver_may_say_when_to_call_back():
    later = Answer(429, {"retry-after": "7"})
    post, running = told(later, later, later, later, Answer(201, {}))
    changes = await running

    assert [7000] * 4 == delays(changes)
    assert (JobState.SUCCEEDED, 5) == (changes[-1].to, len(post.sent))


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (JobState.SUCCEEDED, b'"status":"success"'),
        (JobState.FAILED, b'"status":"failure"'),
        (JobState.CANCELLED, b'"status":"failure"'),
    ],
)
async def test_a_callback_tells_either_end(state, status):
    post, running = told(Answer(201, {}), state=state)
    [change] = await running
    [(_, _, body)] = post.sent

    assert JobState.SUCCEEDED is change.to
    assert status in body


@pytest.mark.parametrize(
    ("output", "result", "metadata"),
    [
        ({"status": "failure", "userId": 9}, {"status": "failure", "userId": 9}, {}),
        ({"result": 1, "openaiMetadata": {"a": 2}, "userId": 9}, 1, {"a": 2}),
        ("text", "text", {}),
    ],
)
async def test_no_output_passes_for_the_envelope(output, result, metadata):
    post, running = told(Answer(201, {}), output=output)
    await running
    [(_, _, sent)] = post.sent
    body = orjson.loads(sent)

    assert ("success", "u") == (body["status"], body["userId"])
    assert (result, metadata) == (body["result"], body["openaiMetadata"])


async def test_a_callback_goes_on_with_the_trace():
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    post, running = told(Answer(201, {}), traceparent=trace)
    await running

    assert [trace] == [headers["traceparent"] for _, headers, _ in post.sent]


async def test_a_callback_waits_for_a_capability_that_is_retried_meanwhile():
    post, running = told(Answer(201, {}), state=JobState.QUEUED)
    changes = await running

    assert {2000} == {*delays(changes)}
    assert (JobState.FAILED, "EXPIRED") == (changes[-1].to, changes[-1].error.code)
    assert [] == post.sent, "what it will come to is not known yet"
