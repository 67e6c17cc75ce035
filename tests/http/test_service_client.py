"""What a call to another service comes to, and whether it may have been taken."""

import httpx2
import pytest

from backburner import Owner
from backburner.http import service_client
from backburner.http.service_client import user_name
from backburner.web import Refusal, ServiceClient, Unsure

ANN = Owner("default", "ann")
HUNG_UP = httpx2.RemoteProtocolError("closed")


def answer(status, content=b"{}", **headers):
    return httpx2.Response(status, content=content, headers=headers)


def calling(*answers, key=""):
    """Return a client whose calls come to these, and the requests that it sent."""
    sent, left = [], [*answers]

    def reply(request):
        sent.append(request)
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    transport = httpx2.MockTransport(reply)
    return ServiceClient("AI service", "http://ai", key=key, transport=transport), sent


@pytest.mark.parametrize(
    ("status", "kind", "told"),
    [
        (400, Refusal, (400, "REFUSED", None)),
        (401, Refusal, (502, "AI_SERVICE_ERROR", None)),
        (429, Refusal, (503, "AI_SERVICE_UNAVAILABLE", 5)),
        (500, Unsure, (502, "AI_SERVICE_ERROR", None)),
        (503, Unsure, (503, "AI_SERVICE_UNAVAILABLE", 5)),
        (200, Unsure, (502, "AI_SERVICE_ERROR", None)),
    ],
)
async def test_an_answer_that_is_of_no_use_is_refused_as_what_it_means(
    status, kind, told
):
    client, _ = calling(answer(status))
    found = await client.call("GET", "/", ANN)
    refusal = found.refusal

    assert (status, kind) == (found.status, type(refusal))
    assert told == (refusal.row.status, refusal.code, refusal.retry_after)


async def test_a_refusal_is_passed_on_and_so_is_a_wait():
    body = b'{"code": "NO", "detail": "why"}'
    client, _ = calling(answer(400, body), answer(503, **{"Retry-After": "7"}))
    refused = (await client.call("GET", "/", ANN)).refusal
    busy = (await client.call("GET", "/", ANN)).refusal

    assert ("NO", "why") == (refused.code, str(refused))
    assert (7, "the AI service is busy") == (busy.retry_after, str(busy))


@pytest.mark.parametrize("body", [b"", b"[1]", b"no json", b'{"a": "' + b"x" * 200])
async def test_what_is_no_object_of_a_bearable_size_is_empty(monkeypatch, body):
    monkeypatch.setattr(service_client, "LARGEST", 100)
    client, _ = calling(answer(200, body), answer(200, b'{"a": 1}'))

    assert {} == (await client.call("GET", "/", ANN)).body
    assert {"a": 1} == (await client.call("GET", "/", ANN)).body


async def test_a_call_names_its_user_and_shows_its_key():
    client, sent = calling(answer(200), key="k")
    await client.call("POST", "/a?b=1", ANN, headers={"X-Request-ID": "r"}, json=[7])

    [request] = sent
    assert ("POST", "http://ai/a?b=1", b"[7]") == (
        request.method,
        str(request.url),
        request.content,
    )
    assert ["ann", "r", "Bearer k"] == [
        request.headers[name] for name in ("X-User-Id", "X-Request-ID", "Authorization")
    ]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (ANN, "ann"),
        (Owner("acme", "ann"), "acme/ann"),
        (Owner("acme", "x" * 200), 64),
    ],
)
def test_each_user_of_each_tenant_has_a_name(owner, name):
    found = user_name(owner)

    assert name in (found, len(found))


async def test_a_connection_that_was_closed_meanwhile_is_opened_again():
    client, sent = calling(HUNG_UP, answer(200, b'{"a": 1}'))
    again = await client.call("GET", "/", ANN)

    assert ({"a": 1}, 2) == (again.body, len(sent))


@pytest.mark.parametrize(
    ("faults", "kind"),
    [
        ([HUNG_UP, HUNG_UP], Unsure),
        ([httpx2.ReadTimeout("late")], Unsure),
        ([httpx2.ConnectError("refused")], Refusal),
        ([httpx2.ConnectTimeout("late")], Refusal),
        ([HUNG_UP, httpx2.ConnectError("refused")], Unsure),
    ],
    ids=["closed", "silent", "refused", "not reached", "closed, then refused"],
)
async def test_only_what_was_not_reached_has_surely_taken_nothing(faults, kind):
    client, sent = calling(*faults)
    with pytest.raises(Refusal) as raised:
        await client.call("GET", "/", ANN)
    told = raised.value

    assert (kind, len(faults)) == (type(told), len(sent))
    assert (503, "AI_SERVICE_UNAVAILABLE", 5) == (
        told.row.status,
        told.code,
        told.retry_after,
    )
