"""The stored steps of a job over HTTP, and a retry that discards them."""

import pytest

from backburner import Context, PermanentError, capability
from backburner.stores.tables import step_results

ON_BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)


@ON_BOTH
async def test_stored_steps_are_listed_kept_by_a_retry_and_discarded_on_demand(serve):
    computed = []

    def measure() -> dict[str, int]:
        computed.append(1)
        return {"size": len(computed)}

    @capability("test.steps", queue="demo", max_attempts=1)
    async def fail(ctx: Context, _value: dict[str, int]) -> None:
        await ctx.step("measure", measure)
        await ctx.step("large", lambda: "x" * 2_000)
        raise PermanentError("no")

    server = await serve(capabilities=[fail])
    job = await server.ended(await server.submit("test.steps"))
    path = f"/v1/jobs/{job['id']}"
    first = (await server.client.get(f"{path}/steps")).json()["items"]
    await server.ended((await server.client.post(f"{path}/retry")).json())
    kept = (await server.client.get(f"{path}/steps")).json()["items"]
    again = await server.client.post(f"{path}/retry", params={"fresh": True})
    await server.ended(again.json())
    fresh = (await server.client.get(f"{path}/steps")).json()["items"]
    asked = {"content": False, "limit": 1}
    short = (await server.client.get(f"{path}/steps", params=asked)).json()

    assert [("measure", {"size": 1}), ("large", None)] == [
        (step["name"], step["result"]) for step in first
    ]
    assert [len('{"size":1}'), 2_002] == [step["size"] for step in first]
    assert first == kept
    assert {"size": 2} == fresh[0]["result"]
    assert (None, True) == (short["items"][0]["result"], short["more"])
    assert ["measure"] == [step["name"] for step in short["items"]]
    assert all(step["duration_ms"] >= 0 for step in [*first, *fresh])
    assert 2 == len(computed)


@ON_BOTH
async def test_steps_in_doubt_and_suspected_spend_are_shown(serve):
    @capability("test.doubt", queue="demo", max_attempts=1)
    async def doubt(ctx: Context, _value: dict[str, int]) -> None:
        await ctx.step("fine", dict)
        await ctx.step("charge", lambda: 1 / 0, once=True)

    server = await serve(capabilities=[doubt])
    job = await server.ended(await server.submit("test.doubt"))
    path = f"/v1/jobs/{job['id']}/steps"
    shown = (await server.client.get(path)).json()

    assert [("fine", "stored"), ("charge", "in_doubt")] == [
        (step["name"], step["state"]) for step in shown["items"]
    ]
    assert {"calls": 0, "input_tokens": 0} == shown["suspected"]
    engine = server.backburner.engine
    [seq] = [found.seq for found in await engine.store.find([job["id"]])]
    lost = {"kind": "ask", "name": "ask", "epoch": 2, "at": 0, "result": ""}
    row = {**lost, "job": seq, "key": "ask/x", "expected": 9, "is_open": True}
    insert = step_results.insert().values(**row, doubts=1)
    await engine.store.transact(lambda tx: tx.connection.execute(insert))
    shown = (await server.client.get(path)).json()

    assert {"calls": 2, "input_tokens": 18} == shown["suspected"]


@ON_BOTH
async def test_a_job_is_forked_after_a_quote_and_only_by_its_owner(serve):
    @capability("test.fork", queue="demo", max_attempts=1)
    async def twice(ctx: Context, value: dict[str, int]) -> list[int]:
        first = await ctx.step("first", lambda: value["n"])
        return [first, await ctx.step("second", lambda: value["n"])]

    server = await serve(capabilities=[twice])
    given = {"metadata": {"order": "A-1042"}}
    made = {"capability": "test.fork", "input": {"n": 1}, **given}
    job = (await server.client.post("/v1/jobs", json=made)).json()
    await server.ended(job)
    path = f"/v1/jobs/{job['id']}/fork"
    asked = {"from": "second", "input": {"n": 2}}
    quoted = await server.client.post(path, json=asked, params={"dry_run": True})
    forked = await server.client.post(path, json=asked)
    ended = await server.ended(forked.json())
    missing = await server.client.post(path, json={"from": "third"})
    unknown = await server.client.post("/v1/jobs/job_0/fork", json=asked)
    listed = await server.client.get(
        "/v1/jobs", params={"tag": f"forked-from:{job['id']}"}
    )

    assert (200, ["first"]) == (quoted.status_code, quoted.json()["reused"])
    assert "test.fork" == quoted.json()["quote"]["capability"]
    assert (202, job["id"]) == (forked.status_code, forked.json()["forked_from"])
    assert ([1, 2], given["metadata"]) == (ended["output"], ended["metadata"])
    assert [ended["id"]] == [each["id"] for each in listed.json()["items"]]
    assert (422, 404) == (missing.status_code, unknown.status_code)
