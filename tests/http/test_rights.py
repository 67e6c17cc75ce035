"""Administration: who may make keys for whom, and in whose log it is written."""

import pytest

from backburner import Budget, Context, PermanentError, capability
from backburner.domain.auth import key as keys
from backburner.domain.auth.access import ROLES, SCOPES, Role
from backburner.domain.auth.key import ApiKey
from backburner.ports.store.keys import AuditEntry
from tests.http.conftest import PEPPER

BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)


@capability("test.think", queue="demo", tokens=20, max_attempts=1)
async def think(_ctx: Context, _value: int) -> None:
    """Fail."""
    raise PermanentError("as asked")


@pytest.fixture
async def keyed(serve):
    return await serve(keyed=True, works=False)


async def holder(server, tenant, role, *more, **fields):
    """Return the headers of a new key with a role's scopes, and more."""
    return server.shown(await server.key(tenant, *ROLES[role], *more, **fields))


async def make(server, headers, *scopes, **fields):
    asked = {"name": "made", "scopes": scopes or ["jobs:read"], **fields}
    return await server.client.post("/v1/keys", json=asked, headers=headers)


async def listed(server, path, headers):
    response = await server.client.get(path, headers=headers)
    assert 200 == response.status_code, response.text
    return response.json()["items"]


async def test_a_key_of_a_user_makes_keys_of_that_user_only(keyed):
    ann = await holder(keyed, "acme", Role.USER, "keys:admin", user="ann")
    answers = [
        await make(keyed, ann, user="ann"),
        await make(keyed, ann, user="bob"),
        await make(keyed, ann),
    ]

    assert [201, 403, 403] == [answer.status_code for answer in answers]
    assert "only keys of that user" in answers[1].json()["detail"]


async def test_a_key_without_users_act_makes_no_keys_of_other_users(keyed):
    scopes = ["keys:admin", "jobs:read"]
    plain = keyed.shown(await keyed.key("acme", *scopes))
    acting = keyed.shown(await keyed.key("acme", *scopes, "users:act"))
    answers = [await make(keyed, plain, **who) for who in ({"user": "bob"}, {})]
    own = await make(keyed, plain, user="1")
    acted = await make(keyed, acting, user="bob")

    assert [403, 201] == [answer.status_code for answer in answers]
    assert "users:act" in answers[0].json()["detail"]
    assert [201, 201] == [own.status_code, acted.status_code]


async def test_a_key_of_a_user_lists_and_revokes_keys_of_that_user_only(keyed):
    ann = await holder(keyed, "acme", Role.USER, "keys:admin", user="ann")
    bobs = (await keyed.key("acme", "jobs:read", user="bob")).split("_")[2]
    anns = (await keyed.key("acme", "jobs:read", user="ann")).split("_")[2]
    seen = await listed(keyed, "/v1/keys", ann)
    answers = [
        (await keyed.client.delete(f"/v1/keys/{key}", headers=ann)).status_code
        for key in (bobs, anns)
    ]

    assert {"ann"} == {key["user"] for key in seen}
    assert [404, 204] == answers


async def test_no_key_outlives_the_key_that_made_it(keyed):
    ends = keyed.backburner.engine.now() + 600_000
    admin = await holder(keyed, "acme", Role.TENANT_ADMINISTRATOR, expires_at=ends)
    mine = (await listed(keyed, "/v1/keys", admin))[0]["expires_at"]
    answers = [
        await make(keyed, admin, expires_at=mine),
        await make(keyed, admin, expires_at="2100-01-01T00:00:00Z"),
        await make(keyed, admin),
    ]

    assert [201, 403, 403] == [answer.status_code for answer in answers]
    assert "expires later" in answers[2].json()["detail"]


async def test_a_tenants_administrator_gives_no_platform_scope(keyed):
    admin = await holder(keyed, "acme", Role.TENANT_ADMINISTRATOR)
    answers = [
        await make(keyed, admin, scope)
        for scope in ("queues:admin", "budgets:admin", "metrics:read", "tenants:act")
    ]

    assert {403} == {answer.status_code for answer in answers}


async def test_not_even_the_platform_gives_a_tenant_a_platform_scope(keyed):
    boss = await holder(keyed, "default", Role.PLATFORM_ADMINISTRATOR)
    there = {**boss, "X-Tenant-Id": "acme"}
    refused = await make(keyed, there, "queues:admin")
    made = await make(keyed, there, "jobs:read", "keys:admin")

    assert (422, 201) == (refused.status_code, made.status_code)
    assert "only a key of the tenant 'default'" in refused.json()["detail"]


async def test_who_gives_less_does_not_revoke_the_platforms_keys(keyed):
    admin = await holder(keyed, "default", Role.TENANT_ADMINISTRATOR)
    boss = (await keyed.key("default", *ROLES[Role.PLATFORM_ADMINISTRATOR])).split("_")
    revoked = await keyed.client.delete(f"/v1/keys/{boss[2]}", headers=admin)

    assert 403 == revoked.status_code


async def test_a_key_from_before_the_rule_has_lost_what_it_cannot_hold(keyed):
    text = keys.write("OldKey01", bytes(range(32)))
    digest = keys.digest(PEPPER.encode(), keys.read(text))
    old = ApiKey("OldKey01", "old", "acme", None, SCOPES, digest, created_at=1)
    entry = AuditEntry(1, "acme", "tests", "key.created", old.id)
    await keyed.backburner.engine.store.add_key(old, entry)
    headers = keyed.shown(text)
    paths = ("/v1/jobs", "/v1/queues", "/metrics", "/v1/workers")
    answers = [
        (await keyed.client.get(path, headers=headers)).status_code for path in paths
    ]
    elsewhere = {**headers, "X-Tenant-Id": "other"}
    answers.append((await keyed.client.get("/v1/jobs", headers=elsewhere)).status_code)

    assert [200, 403, 403, 403, 403] == answers


async def test_only_the_platform_names_a_tenant(keyed):
    admin = await holder(keyed, "acme", Role.TENANT_ADMINISTRATOR)
    named = {**admin, "X-Tenant-Id": "other"}
    boss = await holder(keyed, "default", Role.PLATFORM_OPERATOR)
    answers = [
        await keyed.client.get("/v1/jobs", headers=named),
        await keyed.client.get("/v1/jobs", headers={**boss, "X-Tenant-Id": "acme"}),
        await keyed.client.get("/v1/jobs", headers={**boss, "X-Tenant-Id": "a b"}),
    ]

    assert [403, 200, 422] == [answer.status_code for answer in answers]


async def test_an_act_is_in_the_log_of_the_tenant_it_was_done_to(keyed):
    boss = await holder(keyed, "default", Role.PLATFORM_ADMINISTRATOR)
    acme = {**boss, "X-Tenant-Id": "acme"}
    admin = await holder(keyed, "acme", Role.TENANT_ADMINISTRATOR)
    theirs = (await keyed.key("other", "jobs:read")).split("_")[2]
    made = (await make(keyed, acme)).json()["id"]
    for said in (
        {"scope": "tenant", "of": "acme", "tokens": 5},
        {"scope": "user", "of": "acme/ann", "tokens": 5},
        {"scope": "key", "of": theirs, "tokens": 5},
        {"scope": "capability", "of": "demo.echo", "tokens": 5},
    ):
        put = await keyed.client.put("/v1/budgets", json=said, headers=boss)
        assert 200 == put.status_code, put.text
    paused = await keyed.client.post("/v1/queues/demo/pause", headers=acme)
    in_acme = await listed(keyed, "/v1/audit", admin)
    in_other = await listed(keyed, "/v1/audit", {**boss, "X-Tenant-Id": "other"})
    at_home = await listed(keyed, "/v1/audit", boss)

    assert 200 == paused.status_code
    actor = boss["Authorization"].split("_")[2]
    assert [
        ("budget.set", "user:acme/ann:tokens:86400"),
        ("budget.set", "tenant:acme:tokens:86400"),
        ("key.created", made),
    ] == [(entry["action"], entry["target"]) for entry in in_acme[:3]]
    assert {f"default/{actor}"} == {entry["actor"] for entry in in_acme[:3]}
    assert [f"key:{theirs}:tokens:86400"] == [
        entry["target"] for entry in in_other if entry["action"] == "budget.set"
    ]
    assert [("queue.paused", actor), ("budget.set", actor)] == [
        (entry["action"], entry["actor"]) for entry in at_home[:2]
    ]


async def test_whoever_is_shown_a_secret_is_in_the_log(serve):
    secret = {"webhook_secret": "a secret that only these tests have"}
    server = await serve(keyed=True, works=False, webhooks=secret)
    ann = await holder(server, "acme", Role.USER, user="ann")
    admin = await holder(server, "acme", Role.TENANT_ADMINISTRATOR)
    asked = {"url": "https://hooks.example/a"}
    shown = [
        (await server.client.post("/v1/endpoints", json=asked, headers=ann)).json()
        for _ in range(2)
    ]
    entries = await listed(server, "/v1/audit", admin)

    assert shown[0] == shown[1]
    told = ("endpoint.revealed", shown[0]["id"])
    assert 2 == [(entry["action"], entry["target"]) for entry in entries].count(told)


@pytest.mark.parametrize(
    "scope", ["questions:answer", "queues:read", "metrics:read", "jobs:write"]
)
async def test_a_key_with_any_scope_learns_who_it_is(keyed, scope):
    text = await keyed.key("default", scope)
    headers = keyed.shown(text)
    me = await keyed.client.get("/v1/me", headers=headers)
    stream = await keyed.client.get("/v1/events", headers=headers)
    session = await keyed.client.post("/v1/session", json={"key": text})
    cookie = {"Cookie": session.headers["set-cookie"].partition(";")[0]}
    keyed.client.cookies.clear()
    by_cookie = await keyed.client.get("/v1/me", headers=cookie)

    assert (200, "no-store") == (me.status_code, me.headers["cache-control"])
    assert ([scope], None, False) == (
        me.json()["scopes"],
        me.json()["role"],
        me.json()["streams"],
    )
    assert (403, 200) == (stream.status_code, session.status_code)
    assert me.json() == by_cookie.json()


async def test_who_it_is_needs_a_valid_key(keyed):
    wrong = await keyed.client.get("/v1/me", headers=keyed.shown("bb_live_x"))
    none = await keyed.client.get("/v1/me")
    reader = await keyed.key("acme", "jobs:read")
    me = await keyed.client.get("/v1/me", headers=keyed.shown(reader))

    assert [401, 401, 200] == [one.status_code for one in (wrong, none, me)]
    assert me.json()["streams"]


async def test_the_roles_that_a_caller_is_offered_can_be_granted(keyed):
    admin = await holder(keyed, "default", Role.PLATFORM_ADMINISTRATOR)
    away = {**admin, "X-Tenant-Id": "terns"}
    offered = [
        (await keyed.client.get("/v1/me", headers=headers)).json()["roles"]
        for headers in (admin, away)
    ]
    made = [await make(keyed, away, *scopes) for scopes in offered[1].values()]

    assert {*Role} == {*offered[0]}
    assert {role for role in Role if role.startswith(("user", "tenant"))} == {
        *offered[1]
    }
    assert {201} == {answer.status_code for answer in made}


async def audited(server, tenant="acme"):
    """Return the actions and targets in the audit log of a tenant, the oldest first."""
    store = server.backburner.engine.store
    entries = await store.audited(tenant, before=None, limit=50)
    return [(entry.action, entry.target) for entry in reversed(entries)]


async def submit_all(server, headers):
    """Submit one of everything and send a signal; return the ids."""
    job = {"capability": "demo.echo", "input": {}}
    asked = [
        ("/v1/jobs", job),
        ("/v1/flows", {"steps": [{"name": "one", **job}]}),
        ("/v1/batches", {"jobs": [job], "sealed": False}),
    ]
    made = [
        (await server.client.post(path, json=body, headers=headers)).json()["id"]
        for path, body in asked
    ]
    filled = f"/v1/batches/{made[2]}/members"
    signal = f"/v1/jobs/{made[0]}/signals/go"
    answers = [
        await server.client.post(filled, json={"jobs": [job]}, headers=headers),
        await server.client.post(signal, json=1, headers=headers),
    ]
    assert [202, 201] == [answer.status_code for answer in answers]
    return made


async def test_what_an_administrator_submits_for_a_user_is_in_the_audit_log(keyed):
    admin = await holder(keyed, "acme", Role.TENANT_ADMINISTRATOR)
    before = await audited(keyed)
    await submit_all(keyed, admin)
    own = await audited(keyed)
    job, flow, batch = await submit_all(keyed, {**admin, "X-User-Id": "ann"})
    entries = (await audited(keyed))[len(own) :]

    assert before == own
    assert [
        ("job.submitted", job),
        ("flow.submitted", flow),
        ("batch.submitted", batch),
        ("batch.filled", batch),
        ("job.signalled", job),
    ] == entries


@BOTH
async def test_a_submit_that_is_repeated_or_refused_is_not_in_the_audit_log(keyed):
    admin = await holder(keyed, "acme", Role.TENANT_ADMINISTRATOR)
    for_ann = {**admin, "X-User-Id": "ann"}
    job = {"capability": "demo.echo", "input": {}}
    bodies = {
        "/v1/jobs": job,
        "/v1/flows": {"steps": [{"name": "one", **job}]},
        "/v1/batches": {"jobs": [job], "sealed": False},
    }

    async def post(path, body, key=None):
        known = {} if key is None else {"Idempotency-Key": key}
        headers = {**for_ann, **known}
        return await keyed.client.post(path, json=body, headers=headers)

    made = [await post(path, body, "k") for path, body in bodies.items()]
    fill = f"/v1/batches/{made[2].json()['id']}/members"
    made.append(await post(fill, {"jobs": [job]}, "k"))
    before = await audited(keyed)
    repeats = [await post(path, body, "k") for path, body in bodies.items()]
    repeats.append(await post(fill, {"jobs": [job]}, "k"))
    other = {**job, "input": {"a": 1}}
    conflicts = [
        await post("/v1/jobs", other, "k"),
        await post("/v1/flows", {"steps": [{"name": "one", **other}]}, "k"),
        await post("/v1/batches", {"jobs": [other], "sealed": False}, "k"),
        await post(fill, {"jobs": [other]}, "k"),
    ]
    await keyed.backburner.engine.budgets.put(Budget("user", tokens=1))
    dear = {**job, "tokens": 2}
    refusals = [
        await post("/v1/jobs", dear),
        await post("/v1/flows", {"steps": [{"name": "one", **dear}]}),
        await post("/v1/batches", {"jobs": [dear], "sealed": False}),
        await post(fill, {"jobs": [dear]}),
    ]
    after = await audited(keyed)
    sealed = [await post(fill, {"seal": True}) for _ in range(2)]

    assert [202] * 8 == [answer.status_code for answer in made + repeats]
    assert {"true"} == {answer.headers["idempotency-replayed"] for answer in repeats}
    assert [422] * 4 == [answer.status_code for answer in conflicts]
    assert [429] * 4 == [answer.status_code for answer in refusals], refusals[0].text
    assert before == after
    assert [202, 202] == [answer.status_code for answer in sealed]
    assert ["batch.filled"] == [
        action for action, _ in (await audited(keyed))[len(after) :]
    ]


@BOTH
async def test_a_retry_or_cancel_that_is_refused_is_not_in_the_audit_log(serve):
    server = await serve(keyed=True, capabilities=[think])
    admin = await holder(server, "acme", Role.TENANT_ADMINISTRATOR)

    async def post(path, body=None):
        return await server.client.post(path, json=body, headers=admin)

    async def ended(path):
        waiting = {**admin, "Prefer": "wait=30"}
        return (await server.client.get(path, headers=waiting)).json()["state"]

    asked = {"capability": "test.think", "input": 1}
    job = (await post("/v1/jobs", asked)).headers["location"]
    steps = {"steps": [{"name": "one", **asked}]}
    flow = (await post("/v1/flows", steps)).headers["location"]
    batch = (await post("/v1/batches", {"jobs": [asked]})).headers["location"]
    states = [await ended(path) for path in (job, flow, batch)]
    paths = [f"{path}/retry" for path in (job, flow, batch)]
    await server.backburner.engine.budgets.put(Budget("user", tokens=1))
    before = await audited(server)
    refused = [await post(path) for path in paths]
    refused.append(await post("/v1/dead-letters/retry", {}))
    refused += [await post(f"{flow}/cancel"), await post(f"{job}/cancel")]
    nothing = [
        await post("/v1/dead-letters/retry", {"queue": "none"}),
        await post(f"{batch}/cancel"),
    ]
    after = await audited(server)
    await server.backburner.engine.budgets.drop(Budget("user", tokens=1))
    retried = [await post(path) for path in paths]
    entries = (await audited(server))[len(after) :]

    assert ["failed", "failed", "finished"] == states
    assert [429] * 4 + [409] * 2 == [answer.status_code for answer in refused]
    assert [200, 200] == [answer.status_code for answer in nothing]
    assert before == after
    assert [202] * 3 == [answer.status_code for answer in retried]
    assert ["dead_letter.retried", "flow.retried", "batch.retried"] == [
        action for action, _ in entries
    ]


async def test_a_fork_that_is_refused_is_not_in_the_audit_log(keyed):
    admin = await holder(keyed, "acme", Role.TENANT_ADMINISTRATOR)
    keyed.client.headers.update(admin)
    job = await keyed.submit()
    before = await audited(keyed)
    path = f"/v1/jobs/{job['id']}/fork"
    refused = await keyed.client.post(path, json={"from": 1})

    assert 409 == refused.status_code, refused.text
    assert before == await audited(keyed)


async def test_what_a_backend_submits_for_its_users_is_not(keyed):
    text = await keyed.key("acme", "jobs:read", "jobs:write", "users:act")
    before = await audited(keyed)
    job, *_ = await submit_all(keyed, keyed.shown(text, **{"X-User-Id": "ann"}))
    entries = (await audited(keyed))[len(before) :]

    assert [("job.signalled", job)] == entries


async def test_logins_and_logouts_are_in_the_audit_log(keyed):
    text = await keyed.key("acme", "jobs:read", user="ann")
    before = await audited(keyed)
    await keyed.client.post("/v1/session", json={"key": "bb_live_wrong"})
    session = await keyed.client.post("/v1/session", json={"key": text})
    headers = {
        "Content-Type": "application/json",
        "Cookie": session.headers["set-cookie"].partition(";")[0],
        "X-CSRF-Token": session.json()["csrf_token"],
    }
    keyed.client.cookies.clear()
    out = await keyed.client.delete("/v1/session", headers=headers)
    key_id = text.split("_")[2]

    assert 204 == out.status_code
    assert [("session.opened", key_id), ("session.closed", key_id)] == (
        await audited(keyed)
    )[len(before) :]


async def test_a_link_to_anothers_content_is_in_the_audit_log(serve):
    server = await serve(keyed=True, body_limit=1024 * 1024)
    ann = server.shown(await server.key("acme", "jobs:read", "jobs:write", user="ann"))
    operator = await holder(server, "acme", Role.TENANT_OPERATOR)
    large = {"capability": "demo.echo", "input": {"text": "x" * 100_000}}
    job = (await server.client.post("/v1/jobs", json=large, headers=ann)).json()["id"]
    before = await audited(server)
    path = f"/v1/jobs/{job}/link"
    links = [
        await server.client.get(path, params={"part": "input"}, headers=headers)
        for headers in (ann, operator)
    ]

    assert [200, 200] == [link.status_code for link in links], links[0].text
    assert [("content.linked", job)] == (await audited(server))[len(before) :]
