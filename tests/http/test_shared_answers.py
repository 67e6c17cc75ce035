"""Answers that several callers share."""

import asyncio
import gc
import weakref

import pytest
from starlette.responses import Response

from backburner.http import shared_answers
from backburner.http.shared_answers import (
    LARGEST,
    MOST_ANSWERS,
    MOST_BYTES,
    SharedAnswers,
)
from backburner.testing.broker.acts import pause

COUNT = "/v1/jobs/count?state=succeeded"
OLDER = {"Cache-Control": "max-age=5"}


class Reads:
    """A read that counts how often it was made, and waits if it is told to."""

    def __init__(self, status=200):
        self.made = 0
        self.status = status
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def __call__(self):
        self.made += 1
        await self.may_end.wait()
        return Response(str(self.made), self.status, {"X-Made": "here"})


async def count(server, **headers):
    response = await server.client.get(COUNT, headers=headers)
    assert 200 == response.status_code, response.text
    return response.json()["count"]


async def test_an_older_answer_is_given_only_to_those_who_accept_it(server):
    await server.ended(await server.submit())
    first = await count(server, **OLDER)
    await server.ended(await server.submit())

    assert (1, 1, 2) == (first, await count(server, **OLDER), await count(server))


async def test_an_answer_is_shared_by_those_who_see_the_same(serve):
    server = await serve(keyed=True)
    ann, annas, bob, other, clerk = [
        server.shown(await server.key(tenant, *scopes, user=user))
        for tenant, user, *scopes in (
            *(("acme", "ann"), ("acme", "ann"), ("acme", "bob"), ("other", "ann")),
            ("acme", None, "jobs:read", "tenant:read"),
        )
    ]
    for user in (ann, ann, bob):
        server.client.headers.update(user)
        await server.ended(await server.submit())
        if user is ann:
            await count(server, **ann, **OLDER)
    callers = (ann, annas, bob, other, clerk)

    assert [1, 1, 1, 0, 3] == [await count(server, **c, **OLDER) for c in callers]
    assert [2, 2, 1, 0, 3] == [await count(server, **c) for c in callers]


async def test_a_read_serves_all_who_ask_while_it_is_made():
    shared, read = SharedAnswers(), Reads()
    read.may_end.clear()
    asked = [asyncio.create_task(shared.get("key", 5, read)) for _ in range(9)]
    await pause()
    asked[0].cancel()
    read.may_end.set()
    first, *answers = await asyncio.gather(*asked, return_exceptions=True)
    answers[0].headers["X-Made"] = "by one"

    assert isinstance(first, asyncio.CancelledError)
    assert 1 == read.made
    assert {b"1"} == {answer.body for answer in answers}
    assert {"here"} == {answer.headers["X-Made"] for answer in answers[1:]}


async def test_an_answer_that_is_too_old_is_read_again():
    shared, read = SharedAnswers(), Reads()
    for _ in range(2):
        await shared.get("key", 0, read)

    assert 2 == read.made


@pytest.mark.parametrize("status", [404, 503])
async def test_a_refusal_is_not_kept(status):
    shared, read = SharedAnswers(), Reads(status)
    for _ in range(2):
        await shared.get("key", 5, read)

    assert 2 == read.made


async def test_a_failure_is_raised_to_all_and_not_kept():
    async def fail():
        raise KeyError("lost")

    shared, read = SharedAnswers(), Reads()
    asked = [shared.get("key", 5, fail) for _ in range(2)]
    failures = await asyncio.gather(*asked, return_exceptions=True)

    assert [KeyError, KeyError] == [type(failure) for failure in failures]
    assert b"1" == (await shared.get("key", 5, read)).body


async def test_no_more_answers_are_kept_than_a_bound():
    shared, read = SharedAnswers(), Reads()
    for place in range(MOST_ANSWERS + 1):
        await shared.get(place, 5, read, owner=place)
    await shared.get(1, 5, read, owner=1)
    kept = read.made
    await shared.get(0, 5, read, owner=0)

    assert (MOST_ANSWERS + 1, MOST_ANSWERS + 2) == (kept, read.made)


async def test_an_owner_with_many_answers_takes_no_room_of_others():
    shared, of_ann, of_bob = SharedAnswers(), Reads(), Reads()
    await shared.get("bob", 5, of_bob, owner="bob")
    for place in range(2 * MOST_ANSWERS):
        await shared.get(place, 5, of_ann, owner="ann")
    await shared.get("bob", 5, of_bob, owner="bob")

    assert 1 == of_bob.made


def of_size(size, made):
    async def read():
        response = Response(b"x" * size)
        made.append(weakref.ref(response))
        return response

    return read


async def test_an_answer_that_is_too_large_serves_only_those_who_wait_for_it():
    shared, made = SharedAnswers(), []
    together = [shared.get("key", 5, of_size(LARGEST + 1, made)) for _ in range(3)]
    answers = await asyncio.gather(*together)
    await shared.get("key", 5, of_size(LARGEST + 1, made))

    assert {LARGEST + 1} == {len(answer.body) for answer in answers}
    assert 2 == len(made)


async def test_the_answers_that_are_kept_are_bounded_in_bytes():
    shared, made, size = SharedAnswers(), [], LARGEST
    most = MOST_BYTES // size
    for place in range(most + 9):
        await shared.get(place, 5, of_size(size, made), owner=place)
    gc.collect()

    assert [*range(9, most + 9)] == [
        place for place, response in enumerate(made) if response() is not None
    ]


async def test_nothing_is_kept_of_an_answer_when_it_is_too_old(monkeypatch):
    monkeypatch.setattr(shared_answers, "MOST_SECONDS", 0.01)
    shared, made = SharedAnswers(), []
    await shared.get("key", 5, of_size(9, made))
    async with asyncio.timeout(60):
        while made[0]() is not None:
            await pause()
            gc.collect()
