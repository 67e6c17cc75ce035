"""
A crawler over the described API: every route, by every role, against a table.

Two users of one tenant, a user of another tenant, and the platform. What each role may
call is `ADMITTED`; whose things it finds there is `SEES`. It runs from openapi.json, so
a new route fails here until the table says who may call it.
"""

from dataclasses import dataclass

import pytest

from backburner.domain.auth.access import ROLES, Role
from backburner.domain.jobs.job import Owner
from tests.http.test_tenants import STREAM, body_of, is_stream

WEBHOOKS = {"webhook_secret": "a secret that only these tenants have"}
LATER = "2100-01-01T00:00:00Z"

ANN, BOB, CAT = Owner("acme", "ann"), Owner("acme", "bob"), Owner("other", "cat")
OWNERS = (ANN, BOB, CAT)
NOBODY: frozenset[Owner] = frozenset()

USER, OPERATOR, ADMIN = "user", "tenant operator", "tenant administrator"
OPERATES, RULES = "platform operator", "platform administrator"
OPERATES_ACME, RULES_ACME = f"{OPERATES} in acme", f"{RULES} in acme"
UNBOUND, CLERK = "key without a user", "user with keys:admin"

ROLE_OF = {
    USER: Role.USER,
    CLERK: Role.USER,
    UNBOUND: Role.USER,
    OPERATOR: Role.TENANT_OPERATOR,
    ADMIN: Role.TENANT_ADMINISTRATOR,
    OPERATES: Role.PLATFORM_OPERATOR,
    OPERATES_ACME: Role.PLATFORM_OPERATOR,
    RULES: Role.PLATFORM_ADMINISTRATOR,
    RULES_ACME: Role.PLATFORM_ADMINISTRATOR,
}
EVERYBODY = frozenset(ROLE_OF)
OPERATING = frozenset({OPERATES, OPERATES_ACME, RULES, RULES_ACME})
RULING = frozenset({RULES, RULES_ACME})
WRITING = EVERYBODY - {OPERATOR, OPERATES, OPERATES_ACME}

ADMITTED = {
    **dict.fromkeys(
        [
            *("list_jobs", "get_job", "get_result", "get_link", "watch_job"),
            *("list_steps", "list_job_events", "get_input", "explain_wait"),
            *("count_jobs", "get_me", "list_questions"),
            *("list_flows", "get_flow", "watch_flow", "watch_all"),
            *("list_flow_steps", "get_flow_graph", "list_model_calls"),
            *("list_batches", "get_batch", "watch_batch"),
            *("list_job_deliveries", "list_flow_deliveries", "list_batch_deliveries"),
            *("list_capabilities", "get_usage", "get_costs", "get_activity"),
            *("quote_job", "list_budgets", "get_budget_history"),
            *("list_dead_letters", "get_dead_letter"),
            *("retry_dead_letters", "retry_dead_letter"),
            *("retry_job", "retry_flow", "retry_batch"),
            *("list_endpoints", "get_endpoint", "create_stream_token"),
            *("change_jobs",),
        ],
        EVERYBODY,
    ),
    **dict.fromkeys(
        [
            *("submit_job", "cancel_job", "fork_job", "submit_flow", "cancel_flow"),
            *("signal_job", "answer_question", "change_job"),
            *("open_batch", "fill_batch", "cancel_batch", "replay_delivery"),
            *("create_endpoint", "rotate_endpoint", "disable_endpoint"),
            *("enable_endpoint", "delete_endpoint"),
        ],
        WRITING,
    ),
    **dict.fromkeys(["list_keys", "create_key", "revoke_key"], RULING | {ADMIN, CLERK}),
    "list_audit": OPERATING | {ADMIN},
    **dict.fromkeys(
        [
            *("list_queues", "pause_queue", "resume_queue"),
            *("get_configuration",),
            *("list_schedules", "pause_schedule", "resume_schedule"),
            *("run_schedule", "delete_schedule", "drain_worker", "resume_worker"),
            *("list_workers", "list_lanes", "metrics"),
        ],
        OPERATING,
    ),
    **dict.fromkeys(["set_budget", "drop_budget", "set_schedule"], RULING),
}
"""Which roles may call an operation."""

IN_ACME = {OPERATOR, ADMIN, OPERATES_ACME, RULES_ACME}
SEES = {
    USER: {ANN},
    CLERK: {BOB},
    **dict.fromkeys(IN_ACME, frozenset({ANN, BOB})),
    **dict.fromkeys([UNBOUND, OPERATES, RULES], NOBODY),
}
"""Whose things a role finds where it reads, or retries a dead letter."""
ACTS_FOR = {**dict.fromkeys(EVERYBODY, NOBODY), USER: {ANN}, CLERK: {BOB}}
"""Whose things a role finds where it changes something, or an endpoint."""
KEYS_OF = {**ACTS_FOR, ADMIN: {ANN, BOB}, RULES_ACME: {ANN, BOB}}
"""Whose keys a role finds."""
CHANGES = {**ACTS_FOR, ADMIN: {ANN, BOB}, RULES_ACME: {ANN, BOB}}
"""Whose jobs, flows and batches a role finds where it cancels or changes them."""
CHANGED = {"cancel_job", "change_job", "cancel_flow", "cancel_batch"}
OWN = {
    *(
        "fork_job",
        "fill_batch",
        "replay_delivery",
        "signal_job",
    ),
    *("get_endpoint", "rotate_endpoint", "disable_endpoint"),
    *("enable_endpoint", "delete_endpoint"),
}
"""Operations that reach what belongs to the one user that is acted as."""
OF_DEAD = {"get_dead_letter", "retry_dead_letter", "retry_job"}
NAMED_IN_BODY = {"create_stream_token": "job_id"}
"""Operations that name somebody's thing in the body, and in which field."""


@dataclass
class Things:
    """One of everything of one user, by how a path names it, and its words."""

    named: dict
    words: list

    def filled(self, operation, path):
        """Put this user's ids into a path."""
        if operation in OF_DEAD:
            path = path.replace("{job_id}", self.named["dead"])
        if operation == "replay_delivery":
            path = path.replace("{job_id}", self.named["delivery"])
        for name, value in self.named.items():
            path = path.replace(f"{{{name}}}", value)
        return path


@dataclass
class World:
    """A server, what it says of itself, whose things are in it, and who calls."""

    server: object
    described: dict
    things: dict
    callers: dict
    shared: dict
    """What belongs to nobody, by how a path names it."""

    def operations(self):
        """Return what wants a key; what takes things away comes last."""
        found = [
            (told["operationId"], method, path, told)
            for path, methods in self.described["paths"].items()
            for method, told in methods.items()
            if "security" in told
        ]
        return sorted(found, key=lambda one: (one[1] == "delete", one[1] != "get"))

    async def ask(self, role, method, path, told, owner):
        """Send a request; return its status and its text, a stream's not."""
        body = body_of(self.described, told)
        named = NAMED_IN_BODY.get(told["operationId"])
        if named is not None:
            body = {named: self.things[owner].named[named]}
        if told["operationId"] == "create_key" and role == CLERK:
            body = {**body, "user": "bob"}
        async with self.server.client.stream(
            method,
            path,
            headers=self.callers[role],
            json=body,
            params={"scope": "user"} if told["operationId"] == "drop_budget" else None,
        ) as response:
            if STREAM in response.headers.get("content-type", ""):
                return response.status_code, ""
            await response.aread()
            return response.status_code, response.text


async def things_of(server, owner):
    """Make one of everything for a user, each bearing its name."""
    word = f"word-of-{owner.user}"
    key = await server.key(owner.tenant, *ROLES[Role.USER], user=owner.user)
    post = server.client.post
    server.client.headers.update(server.shown(key))
    url = {"url": f"https://hooks.example/{word}"}
    marked = {"tags": [word], "callback": url}
    done = await server.ended(await server.submit(value={word: word}, **marked))
    dead = await server.failed()
    sent = await server.client.get(f"/v1/jobs/{done['id']}/deliveries")
    later = {"capability": "demo.echo", "input": {word: word}, "run_at": LATER}
    flow = (await post("/v1/flows", json={"steps": [{"name": word, **later}]})).json()
    batch = (await post("/v1/batches", json={"jobs": [later]})).json()
    endpoint = (await post("/v1/endpoints", json=url)).json()
    server.client.headers.pop("Authorization")
    named = {
        "job_id": done["id"],
        "dead": dead["id"],
        "delivery": sent.json()["items"][0]["id"],
        "flow_id": flow["id"],
        "batch_id": batch["id"],
        "endpoint_id": endpoint["id"],
        "key_id": key.split("_")[2],
    }
    return Things(named, [*named.values(), word, *endpoint["secrets"]])


async def callers_of(server):
    """Return the headers of each role."""
    home = {OPERATES: "default", RULES: "default"}
    held = {}
    for name, role in ROLE_OF.items():
        tenant = home.get(name.removesuffix(" in acme"), "acme")
        more = ["keys:admin"] if name == CLERK else []
        bound = {USER: {"user": "ann"}, CLERK: {"user": "bob"}}.get(name, {})
        held[name] = server.shown(
            await server.key(tenant, *ROLES[role], *more, **bound)
        )
        if name.endswith(" in acme"):
            held[name]["X-Tenant-Id"] = "acme"
    return held


@pytest.fixture
async def world(serve):
    """A server with three users of two tenants in it, and a key of every role."""
    server = await serve(keyed=True, webhooks=WEBHOOKS, key_rate=0)
    things = {owner: await things_of(server, owner) for owner in OWNERS}
    described = (await server.client.get("/openapi.json")).json()
    [worker] = await server.backburner.engine.store.workers()
    shared = {"{queue}": "demo", "{schedule}": "nightly", "{worker_id}": worker.id}
    return World(server, described, things, await callers_of(server), shared)


def found_by(role, operation):
    """Return whose things a role finds by an operation with an id."""
    if operation == "revoke_key":
        return KEYS_OF[role]
    if operation in CHANGED:
        return CHANGES[role]
    return ACTS_FOR[role] if operation in OWN else SEES[role]


def names_a_thing(operation, path):
    """Say whether a request is about one thing of somebody's."""
    is_shared = any(part in path for part in ("{queue}", "{schedule}", "{worker_id}"))
    return operation in NAMED_IN_BODY or ("{" in path and not is_shared)


async def crawl(world, *roles):
    """Ask for everything; return what is otherwise than the tables say."""
    odd = []
    for operation, method, path, told in world.operations():
        for role in roles or ROLE_OF:
            for owner in OWNERS if names_a_thing(operation, path) else [None]:
                place = path
                for part, name in world.shared.items():
                    place = place.replace(part, name)
                if owner is not None:
                    place = world.things[owner].filled(operation, path)
                status, text = await world.ask(role, method, place, told, owner)
                odd += judged(world, role, operation, owner, status, text)
    return odd


def judged(world, role, operation, owner, status, text):
    """Return what is wrong with one answer."""
    at = f"{operation} by {role}" + ("" if owner is None else f" on {owner.user}'s")
    if role not in ADMITTED.get(operation, ()):
        return [] if status == 403 else [f"{at}: {status}, not 403"]
    if owner is not None and owner not in found_by(role, operation):
        return [] if status == 404 else [f"{at}: {status}, not 404"]
    odd = [f"{at}: {status}"] if status in {401, 403, 500} else []
    # A small result has no link, nobody set that budget, and one role before deleted
    # the schedule.
    absent = {"get_link", "drop_budget", "delete_schedule"}
    if status == 404 and operation not in absent:
        odd.append(f"{at}: 404")
    return odd + [
        f"{at} shows {hidden.user}'s {word}"
        for hidden in set(OWNERS) - KEYS_OF[role] - SEES[role]
        for word in world.things[hidden].words
        if word in text
    ]


async def test_the_table_knows_every_operation(world):
    described = {operation for operation, *_ in world.operations()}

    assert described == set(ADMITTED)
    assert any(is_stream(told) for *_, told in world.operations())


async def test_every_role_gets_what_the_table_says_on_every_route(world):
    assert [] == await crawl(world)


@pytest.mark.thorough
async def test_the_crawler_sees_a_reader_of_everything(world, monkeypatch):
    monkeypatch.setattr(Owner, "covers", lambda _self, _owner: True)
    odd = await crawl(world, USER)

    assert "get_job by user on bob's: 200, not 404" in odd
    assert "get_job by user on cat's: 200, not 404" in odd
    assert not [at for at in odd if at.startswith("get_job by user on ann's")]


@pytest.mark.thorough
async def test_the_crawler_sees_a_scope_too_many(world):
    more = [*ROLES[Role.USER], "tenant:read", "queues:admin"]
    world.callers[USER] = world.server.shown(await world.server.key("default", *more))
    world.callers[USER]["X-Tenant-Id"] = "acme"
    without = await crawl(world, USER)
    world.callers[USER].pop("X-Tenant-Id")
    odd = await crawl(world, USER)

    assert "get_job by user on ann's: 403" in without, "it may not name a tenant"
    assert "pause_queue by user: 200, not 403" in odd
