"""
What users say stays out of logs, metrics and other people's answers.

A text of its own is planted in every place that a user can fill: `PLANTED` is the one
list of them.
"""

import json

import httpx2
import pytest

pytestmark = pytest.mark.one_store

PLACES = (
    "input",
    "output",
    "error",
    "progress",
    "streamed",
    "tag",
    "metadata",
    "bad-metadata",
    "key",
    "queue",
    "capability",
    "agent",
    "header",
    "request-id",
    "traceparent",
    "authorization",
    "cookie",
    "query",
    "path",
    "cursor",
    "bad-json",
    "bad-field",
    "bad-type",
    "method",
)
PLANTED = {place: f"canary-{place}-7f3a" for place in PLACES}


def post(body, **headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = {"Content-Type": "application/json"}
    return {"method": "POST", "url": "/v1/jobs", "content": content} | {
        "headers": kind | headers
    }


def get(url, **headers):
    return {"method": "GET", "url": url, "headers": headers}


def echo(**more):
    return {"capability": "demo.echo", "input": {}} | more


P = PLANTED
REQUESTS = {
    "output": post(echo(input={"text": P["output"]})),
    "input error progress streamed": post(
        {
            "capability": "shout",
            "input": {
                "text": P["input"],
                "error": P["error"],
                "progress": P["progress"],
                "streamed": P["streamed"],
            },
        }
    ),
    "tag": post(echo(tags=[P["tag"]])),
    "metadata": post(echo(metadata={P["metadata"]: P["metadata"]})),
    "bad-metadata": post(echo(metadata={P["bad-metadata"]: [P["bad-metadata"]]})),
    "key": post(echo(), **{"Idempotency-Key": P["key"]}),
    "key again": post(echo(input={"a": 1}), **{"Idempotency-Key": P["key"]}),
    "queue": post(echo(queue=P["queue"])),
    "capability": post(echo(capability=P["capability"])),
    "agent": post(echo(), **{"User-Agent": P["agent"]}),
    "header": post(echo(), **{"X-Anything": P["header"]}),
    "request-id": post(echo(), **{"X-Request-ID": f"two words {P['request-id']}"}),
    "traceparent": post(echo(), traceparent=P["traceparent"]),
    "authorization": post(echo(), Authorization=f"Bearer {P['authorization']}"),
    "cookie": post(echo(), Cookie=f"session={P['cookie']}"),
    "query": get(f"/v1/jobs?tag={P['query']}&{P['query']}=1"),
    "path": get(f"/v1/jobs/{P['path']}"),
    "cursor": get(f"/v1/jobs?cursor={P['cursor']}"),
    "bad-json": post(f'{{"capability": "{P["bad-json"]}"'.encode()),
    "bad-field": post(echo(**{P["bad-field"]: 1})),
    "bad-type": post({"capability": "demo.sleep", "input": {"seconds": P["bad-type"]}}),
    "method": {"method": "POST", "url": f"/v1/jobs/{P['method']}/cancel"},
}


async def plant(module, fleet, client):
    """Make every request; return the answers, and the metrics when all is over."""
    debug = {"BACKBURNER_LOG_LEVEL": "debug"}
    # With --dev, a worker in the server would show stack traces on its console.
    server = await fleet.serve(module, "--no-worker", **debug).ready()
    await fleet.worker(module, **debug).ready()
    base = httpx2.AsyncClient(base_url=server.address, timeout=60, trust_env=False)
    async with base as caller:
        answers = {name: await caller.request(**r) for name, r in REQUESTS.items()}
        accepted = [a.json()["id"] for a in answers.values() if a.status_code == 202]
        await client.ended(accepted)
        answers["metrics"] = await caller.get("/metrics")
    return answers


def leaks(fleet, answers):
    """Return which text was found where it was not said."""
    public = {name: answer.text for name, answer in answers.items()}
    public["log"] = fleet.logs
    return {
        (place, where)
        for place, text in PLANTED.items()
        for where, shown in public.items()
        if text in shown and place not in where.split()
    }


async def test_what_users_say_stays_out_of_logs_metrics_and_others_answers(
    fleet, client
):
    answers = await plant("breakable", fleet, client)
    statuses = {name: answer.status_code for name, answer in answers.items()}

    assert set() == leaks(fleet, answers)
    assert set(PLANTED) <= {word for name in REQUESTS for word in name.split()}
    assert {202, 404, 422} <= set(statuses.values())
    assert [] == [name for name, status in statuses.items() if status >= 500]


@pytest.mark.thorough
async def test_a_handler_that_prints_them_is_found_out(fleet, client):
    answers = await plant("leaky", fleet, client)

    found = {(place, "log") for place in ("input", "error", "progress", "streamed")}
    assert found == leaks(fleet, answers)
