"""Dead letters over HTTP."""

import pytest

from backburner.domain.auth.access import ROLES, Role
from backburner.http.schemas.jobs import FailurePage, JobPage, Retried

ON_BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)


async def retry(server, **which):
    """Retry the dead letters that match."""
    response = await server.client.post("/v1/dead-letters/retry", json=which)
    return Retried.model_validate(response.json())


async def test_dead_letters_are_grouped_by_how_they_failed(server):
    first, second = await server.failed(), await server.failed()
    page = (await server.client.get("/v1/dead-letters")).json()
    (group,) = FailurePage.model_validate(page).items

    assert 2 == group.count
    assert ("demo.fail", "PERMANENT") == (group.capability, group.code)
    assert second["id"] == group.sample_id
    assert first["finished_at"] == page["items"][0]["first_at"]


async def test_the_jobs_of_a_group_are_listed_page_by_page(server):
    first, second = await server.failed(), await server.failed()
    groups = (await server.client.get("/v1/dead-letters")).json()["items"]
    here = groups[0]["links"]["jobs"]
    page = await server.client.get(f"{here}&limit=1")
    rest = await server.client.get(page.links["next"]["url"])

    assert [second["id"]] == [j.id for j in JobPage.model_validate(page.json()).items]
    assert [first["id"]] == [j.id for j in JobPage.model_validate(rest.json()).items]


async def test_groups_have_no_cursor(server):
    response = await server.client.get("/v1/dead-letters?cursor=MQ")

    assert 422 == response.status_code


async def test_a_dead_letter_is_shown_and_any_other_job_is_not(server):
    failed, fine = await server.failed(), await server.ended(await server.submit())
    found = await server.client.get(f"/v1/dead-letters/{failed['id']}")
    other = await server.client.get(f"/v1/dead-letters/{fine['id']}")

    assert failed == found.json()
    assert 404 == other.status_code


async def test_a_dead_letter_is_retried_by_its_id(server):
    job = await server.failed()
    response = await server.client.post(f"/v1/dead-letters/{job['id']}/retry")

    assert 202 == response.status_code
    assert 1 == response.json()["generation"]
    assert "succeeded" == (await server.ended(job))["state"]


async def test_many_are_counted_first_and_then_retried(server):
    jobs = [await server.failed() for _ in range(3)]
    counted = await retry(server, capability="demo.fail", dry_run=True)
    some = await retry(server, queue="demo", limit=2)
    rest = await retry(server)
    ended = [(await server.ended(job))["state"] for job in jobs]

    assert Retried(matched=3, retried=0, remaining=3, dry_run=True) == counted
    assert Retried(matched=3, retried=2, remaining=1, dry_run=False) == some
    assert Retried(matched=1, retried=1, remaining=0, dry_run=False) == rest
    assert ["succeeded"] * 3 == ended


async def test_a_canary_goes_first_and_the_rest_is_told_to_remain(server):
    jobs = [await server.failed() for _ in range(3)]
    canary = await retry(server, canary=1)
    ended = await server.ended(jobs[-1])
    left = [(await server.ended(job))["state"] for job in jobs[:-1]]

    assert Retried(matched=3, retried=1, remaining=2, dry_run=False) == canary
    assert "succeeded" == ended["state"]
    assert ["failed"] * 2 == left


@ON_BOTH
async def test_many_are_retried_at_a_rate_by_whoever_is_there(serve):
    server = await serve()
    jobs = [await server.failed() for _ in range(3)]
    await server.backburner.stop_worker()
    retried = await retry(server, rate=2)
    found = await server.backburner.engine.store.find([job["id"] for job in jobs])
    await server.backburner.start_worker()
    ended = [await server.ended(job) for job in jobs]

    assert Retried(matched=3, retried=3, remaining=0, dry_run=False) == retried
    assert ["scheduled", "scheduled", "queued"] == [job.state for job in found]
    assert 500 == found[0].run_at - found[1].run_at
    assert ["succeeded"] * 3 == [job["state"] for job in ended]
    starts = [job["attempts"][-1]["started_at"] for job in reversed(ended)]
    assert sorted(starts) == starts


@pytest.mark.parametrize(
    "which", [{"capability": "demo.echo"}, {"queue": "x"}, {"fingerprint": "x"}]
)
async def test_what_does_not_match_is_left_alone(server, which):
    await server.failed()

    nothing = Retried(matched=0, retried=0, remaining=0, dry_run=False)
    assert nothing == await retry(server, **which)


@pytest.mark.parametrize(
    "which",
    [
        {"limit": 0},
        {"limit": 1001},
        {"rate": 0},
        {"rate": 1001},
        {"canary": 0},
        {"other": 5},
        [],
    ],
)
async def test_a_retry_that_cannot_be_is_refused(server, which):
    response = await server.client.post("/v1/dead-letters/retry", json=which)

    assert 422 == response.status_code


async def an_audit(server, headers):
    found = await server.client.get("/v1/audit", headers=headers)
    return [(entry["action"], entry["target"]) for entry in found.json()["items"]]


async def test_every_retry_needs_its_own_scope_and_is_in_the_log(serve):
    server = await serve(keyed=True)
    boss = server.shown(await server.key())
    clerk = server.shown(await server.key("default", "jobs:read", "jobs:write"))
    server.client.headers.update(boss)
    job = await server.failed()
    fails = {
        "capability": "demo.fail",
        "input": {"times": 9, "error": "permanent"},
    }
    steps = [{"name": "a", **fails}]
    flow = (await server.client.post("/v1/flows", json={"steps": steps})).json()
    asked = {"jobs": [fails], "sealed": True}
    batch = (await server.client.post("/v1/batches", json=asked)).json()
    for thing in (f"flows/{flow['id']}", f"batches/{batch['id']}"):
        await server.client.get(f"/v1/{thing}", headers={"Prefer": "wait=30"})
    places = (
        f"/v1/jobs/{job['id']}/retry",
        f"/v1/flows/{flow['id']}/retry",
        f"/v1/batches/{batch['id']}/retry",
    )
    refused = [await server.client.post(place, headers=clerk) for place in places]
    before = await an_audit(server, boss)
    retried = [await server.client.post(place, headers=boss) for place in places]
    after = await an_audit(server, boss)

    assert [403] * 3 == [answer.status_code for answer in refused]
    assert [202] * 3 == [answer.status_code for answer in retried]
    assert [
        ("batch.retried", batch["id"]),
        ("flow.retried", flow["id"]),
        ("dead_letter.retried", job["id"]),
    ] == after[: len(after) - len(before)]


async def test_what_is_no_dead_letter_leaves_no_entry(serve):
    server = await serve(keyed=True)
    boss = server.shown(await server.key())
    server.client.headers.update(boss)
    job = await server.ended(await server.submit())
    before = await an_audit(server, boss)
    retried = await server.client.post(f"/v1/jobs/{job['id']}/retry")

    assert 409 == retried.status_code
    assert before == await an_audit(server, boss)


async def test_an_operator_retries_the_dead_letters_of_its_tenant(serve):
    server = await serve(keyed=True)
    ann = server.shown(await server.key("acme", *ROLES[Role.USER], user="ann"))
    operator = server.shown(await server.key("acme", *ROLES[Role.TENANT_OPERATOR]))
    other = server.shown(await server.key("other", *ROLES[Role.TENANT_OPERATOR]))
    server.client.headers.update(ann)
    jobs = [await server.failed() for _ in range(2)]
    seen = await server.client.get("/v1/dead-letters", headers=operator)
    unseen = await server.client.get("/v1/dead-letters", headers=other)
    one = await server.client.post(
        f"/v1/dead-letters/{jobs[0]['id']}/retry", headers=operator
    )
    none = await server.client.post("/v1/dead-letters/retry", json={}, headers=other)
    rest = await server.client.post("/v1/dead-letters/retry", json={}, headers=operator)

    assert [2] == [group["count"] for group in seen.json()["items"]]
    assert [] == unseen.json()["items"]
    assert (202, "ann") == (one.status_code, one.json()["user"])
    assert [0, 1] == [answer.json()["retried"] for answer in (none, rest)]


async def test_groups_beyond_the_limit_are_told(server):
    for error in ("permanent", "transient"):
        value = {"times": 9, "error": error}
        await server.ended(await server.submit("demo.fail", value, max_attempts=1))
    first = (await server.client.get("/v1/dead-letters?limit=1")).json()
    both = (await server.client.get("/v1/dead-letters")).json()

    assert [1, 2] == [len(page["items"]) for page in (first, both)]
    assert [True, False] == [page["more"] for page in (first, both)]


@ON_BOTH
async def test_what_matches_is_counted_beyond_the_limit(server):
    for _ in range(3):
        await server.failed()
    counted = await retry(server, limit=1, dry_run=True)
    one = await retry(server, limit=1)

    assert Retried(matched=3, retried=0, remaining=3, dry_run=True) == counted
    assert Retried(matched=3, retried=1, remaining=2, dry_run=False) == one
