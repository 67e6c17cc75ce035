"""Whose jobs, flows and batches a caller cancels and changes."""

from dataclasses import dataclass

import pytest

from backburner import PermanentError
from backburner.domain.auth.access import ACT, READ_TENANT, ROLES, Role

LATER = "2100-01-01T00:00:00Z"
JOB = {"capability": "demo.echo", "input": {}, "run_at": LATER}
ADMINISTRATOR = ROLES[Role.TENANT_ADMINISTRATOR]
PLATFORM = ROLES[Role.PLATFORM_ADMINISTRATOR]

pytestmark = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)


@dataclass
class Things:
    """The headers of a user, and one of everything that it owns."""

    headers: dict
    job: str
    flow: str
    batch: str

    @property
    def changes(self):
        """Return requests that cancel and change these, the cancelling last."""
        flow, batch = f"/v1/flows/{self.flow}", f"/v1/batches/{self.batch}"
        return [
            ("PATCH", f"/v1/jobs/{self.job}", {"priority": 7}),
            ("PATCH", f"/v1/jobs/{self.job}", {"run_at": "2101-01-01T00:00:00Z"}),
            ("POST", f"/v1/jobs/{self.job}/cancel", None),
            ("POST", f"{flow}/cancel", None),
            ("POST", f"{batch}/cancel", None),
        ]


@dataclass
class World:
    """A server with two users of one tenant and one of another."""

    server: object
    ann: Things
    bob: Things
    cat: Things

    async def key(self, tenant, *scopes, **fields):
        """Return the headers of a new key."""
        return self.server.shown(await self.server.key(tenant, *scopes, **fields))

    async def sent(self, headers, method, path, body=None):
        """Return the answer to a request."""
        return await self.server.client.request(
            method, path, headers=headers, json=body
        )

    async def statuses(self, headers, things):
        """Return how all changes of somebody's things are answered."""
        answers = [await self.sent(headers, *change) for change in things.changes]
        return [answer.status_code for answer in answers]

    async def state(self, things, job=None):
        """Return the state of a user's job."""
        path = f"/v1/jobs/{job or things.job}"
        return (await self.sent(things.headers, "GET", path)).json()["state"]

    async def states(self):
        """Return the states of the jobs of ann, bob and cat."""
        return [await self.state(things) for things in (self.ann, self.bob, self.cat)]

    async def bulk(self, headers, **body):
        """Return the job of a bulk action after it has ended."""
        body = {"action": "cancel", **body}
        answer = await self.sent(headers, "POST", "/v1/jobs/bulk", body)
        assert 202 == answer.status_code, answer.text
        waiting = {**headers, "Prefer": "wait=30"}
        return (await self.sent(waiting, "GET", answer.headers["location"])).json()

    async def progress(self, headers, job):
        """Return what a bulk job reported last."""
        told = await self.sent(headers, "GET", f"/v1/jobs/{job['id']}/history")
        reports = [e["data"] for e in told.json()["items"] if e["type"].endswith("ess")]
        return reports[-1]


async def things_of(server, tenant, user):
    """Make one of everything for a user."""
    headers = server.shown(await server.key(tenant, *ROLES[Role.USER], user=user))

    async def made(path, body):
        answer = await server.client.post(path, json=body, headers=headers)
        assert 202 == answer.status_code, answer.text
        return answer.json()["id"]

    return Things(
        headers,
        await made("/v1/jobs", JOB),
        await made("/v1/flows", {"steps": [{"name": "one", **JOB}]}),
        await made("/v1/batches", {"jobs": [JOB]}),
    )


@pytest.fixture
async def world(serve):
    server = await serve(keyed=True)
    people = [("acme", "ann"), ("acme", "bob"), ("other", "cat")]
    return World(server, *[await things_of(server, *one) for one in people])


@pytest.mark.parametrize("is_platform", [False, True])
async def test_an_administrator_changes_what_belongs_to_any_user(world, is_platform):
    if is_platform:
        caller = {**await world.key("default", *PLATFORM), "X-Tenant-Id": "acme"}
    else:
        caller = await world.key("acme", *ADMINISTRATOR)

    assert [200] * 5 == await world.statuses(caller, world.ann)
    assert [200] * 5 == await world.statuses(caller, world.bob)
    assert [404] * 5 == await world.statuses(caller, world.cat)
    assert ["cancelled", "cancelled", "scheduled"] == await world.states()
    me = (await world.sent(caller, "GET", "/v1/me")).json()
    assert me["changes_tenant"]


async def test_the_user_that_an_administrator_names_is_the_only_one(world):
    caller = {**await world.key("acme", *ADMINISTRATOR), "X-User-Id": "ann"}

    assert [404] * 5 == await world.statuses(caller, world.bob)
    assert [200] * 5 == await world.statuses(caller, world.ann)
    assert ["cancelled", "scheduled", "scheduled"] == await world.states()
    me = (await world.sent(caller, "GET", "/v1/me")).json()
    assert not me["changes_tenant"]


@pytest.mark.parametrize(
    ("scopes", "refused"),
    [
        (ROLES[Role.USER], 404),
        (ROLES[Role.USER] | {READ_TENANT}, 404),
        (ROLES[Role.USER] | {ACT}, 404),
        (ROLES[Role.TENANT_OPERATOR], 403),
        (ROLES[Role.TENANT_OPERATOR] | {ACT}, 403),
    ],
)
async def test_all_others_change_only_their_own(world, scopes, refused):
    caller = await world.key("acme", *scopes)

    assert [refused] * 5 == await world.statuses(caller, world.ann)
    assert ["scheduled"] * 3 == await world.states()
    me = (await world.sent(caller, "GET", "/v1/me")).json()
    assert not me["changes_tenant"]


async def test_a_user_changes_nothing_of_others(world):
    assert [404] * 5 == await world.statuses(world.ann.headers, world.bob)
    assert [404] * 5 == await world.statuses(world.ann.headers, world.cat)
    assert [200] * 5 == await world.statuses(world.ann.headers, world.ann)


async def test_a_bulk_cancel_of_an_administrator_reaches_its_tenant(world):
    caller = await world.key("acme", *ADMINISTRATOR)
    done = await world.bulk(caller, where={"state": "scheduled"})

    assert ("succeeded", 6, 0) == (
        done["state"],
        done["output"]["changed"],
        done["output"]["skipped"],
    ), "each of two users has a job, a step and a member"
    assert ["cancelled", "cancelled", "scheduled"] == await world.states()
    report = await world.progress(caller, done)
    assert (6, 6, "6 cancelled, 0 skipped") == (
        report["done"],
        report["total"],
        report["message"],
    )


async def test_a_bulk_cancel_reaches_the_user_that_it_selects(world):
    caller = await world.key("acme", *ADMINISTRATOR)
    own = (await world.sent(caller, "POST", "/v1/jobs", JOB)).json()["id"]
    done = await world.bulk(caller, where={"user": "ann", "state": "scheduled"})

    assert 3 == done["output"]["changed"]
    assert ["cancelled", "scheduled", "scheduled"] == await world.states()
    mine = (await world.sent(caller, "GET", f"/v1/jobs/{own}")).json()
    assert "scheduled" == mine["state"]


async def test_a_bulk_cancel_by_ids_reaches_only_the_tenant(world):
    caller = await world.key("acme", *ADMINISTRATOR)
    ids = [world.ann.job, world.bob.job, world.cat.job]
    done = await world.bulk(caller, ids=ids)

    assert (2, 1) == (done["output"]["changed"], done["output"]["skipped"])
    assert ["cancelled", "cancelled", "scheduled"] == await world.states()


async def test_a_bulk_cancel_counts_only_what_it_can_cancel(world):
    caller = await world.key("acme", *ADMINISTRATOR)
    await world.sent(caller, "POST", f"/v1/jobs/{world.ann.job}/cancel")
    done = await world.bulk(caller, where={})
    asked = await world.sent(caller, "GET", f"/v1/jobs/{done['id']}/input")
    report = await world.progress(caller, done)

    assert 5 == asked.json()["matched"], "one of the six had ended"
    assert (5, 5) == (report["done"], report["total"])


@pytest.mark.parametrize(
    "more", [set(), {READ_TENANT}, {ACT}], ids=["none", READ_TENANT, ACT]
)
async def test_a_bulk_cancel_of_another_user_says_what_it_needs(world, more):
    caller = await world.key("acme", *ROLES[Role.USER] | more)
    body = {"action": "cancel", "where": {"user": "ann"}}
    refused = await world.sent(caller, "POST", "/v1/jobs/bulk", body)

    assert 403 == refused.status_code
    assert "requires the scopes users:act and tenant:read" in refused.json()["detail"]
    assert 0 == (await world.bulk(caller, where={}))["output"]["changed"]
    assert ["scheduled"] * 3 == await world.states()


async def test_a_bulk_cancel_of_a_named_user_selects_no_other(world):
    caller = {**await world.key("acme", *ADMINISTRATOR), "X-User-Id": "ann"}
    body = {"action": "cancel", "where": {"user": "bob"}}
    refused = await world.sent(caller, "POST", "/v1/jobs/bulk", body)

    assert 403 == refused.status_code
    assert "X-User-Id" in refused.json()["detail"]
    assert 3 == (await world.bulk(caller, where={}))["output"]["changed"]
    assert ["cancelled", "scheduled", "scheduled"] == await world.states()


async def failed_bulk(world, headers, monkeypatch):
    """Return the id of a retry of all dead letters that has failed."""

    async def fail(_jobs):
        raise PermanentError("the store is full")

    with monkeypatch.context() as patch:
        patch.setattr(world.server.backburner.engine, "retry_jobs", fail)
        done = await world.bulk(headers, action="retry", where={})
    assert "failed" == done["state"]
    return done["id"]


async def test_an_ordinary_key_does_not_reach_an_operators_action(world):
    operator = await world.key("acme", *ROLES[Role.TENANT_OPERATOR])
    user = await world.key("acme", *ROLES[Role.USER])
    administrator = await world.key("acme", *ADMINISTRATOR)
    done = await world.bulk(operator, action="retry", where={})
    path = f"/v1/jobs/{done['id']}"
    reads = [path, f"{path}/input", f"{path}/result", f"{path}/history"]
    listed = (await world.sent(user, "GET", "/v1/jobs")).json()["items"]
    answers = [await world.sent(user, "GET", read) for read in reads]
    answers += [
        await world.sent(user, "PATCH", path, {"priority": 1}),
        await world.sent(user, "POST", f"{path}/cancel"),
        await world.sent(user, "POST", f"{path}/retry"),
    ]
    named = {**administrator, "X-User-Id": done["user"]}

    assert {404} == {answer.status_code for answer in answers}
    assert [] == listed
    assert 200 == (await world.sent(operator, "GET", path)).status_code
    assert 422 == (await world.sent(named, "GET", path)).status_code


async def test_an_action_that_reaches_only_its_user_is_that_users(world):
    administrator = await world.key("acme", *ADMINISTRATOR)
    named = {**administrator, "X-User-Id": "ann"}
    own = await world.bulk(world.ann.headers, where={"tag": "none"})
    hers = await world.bulk(named, where={"tag": "none"})
    of_her = await world.bulk(administrator, where={"user": "ann", "tag": "none"})

    assert ["ann", "ann", "all users"] == [
        (await world.sent(administrator, "GET", f"/v1/jobs/{job['id']}")).json()["user"]
        for job in (own, hers, of_her)
    ]


async def test_no_failed_bulk_action_is_retried(world, monkeypatch):
    operator = await world.key("acme", *ROLES[Role.TENANT_OPERATOR])
    failed = await failed_bulk(world, operator, monkeypatch)
    value = {"times": 1, "error": "permanent"}
    job = {"capability": "demo.fail", "input": value}
    dead = await world.sent(world.ann.headers, "POST", "/v1/jobs", job)
    waiting = {**world.ann.headers, "Prefer": "wait=30"}
    await world.sent(waiting, "GET", dead.headers["location"])

    alone = await world.sent(operator, "POST", f"/v1/jobs/{failed}/retry")
    letter = await world.sent(operator, "POST", f"/v1/dead-letters/{failed}/retry")
    path = "/v1/dead-letters/retry"
    dry = await world.sent(operator, "POST", path, {"dry_run": True})
    of_queue = {"queue": "backburner.bulk", "dry_run": True}
    none = await world.sent(operator, "POST", path, of_queue)
    staged = await world.bulk(operator, action="retry", where={}, staged=True)
    await world.sent(waiting, "GET", dead.headers["location"])
    everything = await world.sent(operator, "POST", path, {})
    after = (await world.sent(operator, "GET", f"/v1/jobs/{failed}")).json()

    assert [409, 409] == [alone.status_code, letter.status_code]
    assert [1, 0] == [answer.json()["matched"] for answer in (dry, none)]
    assert "submit it again" in alone.json()["detail"]
    assert [[dead.json()["id"]]] == [s["ids"] for s in staged["output"]["stages"]][:1]
    assert 0 == everything.json()["remaining"], "what cannot be retried"
    assert ("failed", 0) == (after["state"], after["generation"])
