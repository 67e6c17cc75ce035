"""How much one call takes."""

import pytest

ECHO = {"capability": "demo.echo", "input": {}}
LARGE = 8 * 1024 * 1024


def step(name, *needs):
    """Write a step with an input of its own."""
    return {"name": name, **ECHO, "needs": list(needs)}


async def test_there_are_limits_to_what_one_call_takes(serve):
    server = await serve(body_limit=LARGE, works=False)
    many = [step(f"s{n}") for n in range(10_001)]
    names = [f"s{n}" for n in range(400)]
    dense = [step(name, *names[:n]) for n, name in enumerate(names)]
    asked = [
        ("/v1/flows", {"steps": many}, "steps"),
        ("/v1/flows", {"steps": [*dense, *dense]}, "steps"),
        ("/v1/batches", {"jobs": [ECHO] * 10_001}, "jobs"),
        (
            "/v1/batches",
            {"jobs": [ECHO] * 5_001, "flows": [{"steps": [step("a")]}] * 5_000},
            "jobs",
        ),
        ("/v1/batches", {"flows": [{"steps": dense}] * 2}, "flows"),
    ]
    answers = [await server.client.post(path, json=body) for path, body, _ in asked]

    assert {422} == {answer.status_code for answer in answers}
    assert [[path] for _, _, path in asked] == [
        [error["path"] for error in answer.json()["errors"]] for answer in answers
    ]
    assert [] == (await server.client.get("/v1/jobs")).json()["items"]


@pytest.mark.thorough
@pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
async def test_a_flow_of_ten_thousand_steps_is_taken_and_shown(serve):
    server = await serve(body_limit=LARGE, works=False)
    steps = [step(f"s{n}") for n in range(9_999)]
    steps.append(step("join", *(f"s{n}" for n in range(9_999))))
    response = await server.client.post("/v1/flows", json={"steps": steps})
    shown = await server.client.get(response.headers["Location"])
    cancelled = await server.client.post(response.json()["links"]["cancel"])

    assert 202 == response.status_code
    assert {"queued": 9_999, "blocked": 1} == shown.json()["counts"]
    assert 9_999 == len(shown.json()["steps"][-1]["needs"])
    assert {"cancelled": 10_000} == cancelled.json()["counts"]
