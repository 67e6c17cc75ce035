"""Budgets over HTTP: what is refused, what is shown, and who may change it."""

import asyncio
from decimal import Decimal

import pytest
import sqlalchemy as sa

from backburner import Budget, Context, PermanentError, capability
from backburner.domain.costs.budget import Balance
from backburner.ports.store.maintenance import JobFilter

BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
ONE = Decimal(1)
FIFTY = Budget("user", tokens=50)
DAY = 86_400


@capability("test.think", queue="demo", tokens=20, max_attempts=1)
async def think(ctx: Context, value: dict[str, int]) -> None:
    """Use so many tokens, and fail if asked to."""
    if "uses" in value:
        ctx.used("a-model", input_tokens=value["uses"], output_tokens=0)
    if value.get("fails"):
        raise PermanentError("as asked")


@pytest.fixture
async def thrifty(serve):
    """Start a server with a budget of two thoughts and a half."""

    async def start(*budgets, **options):
        server = await serve(capabilities=[think], **options)
        await server.backburner.engine.store.put_budgets(budgets or [FIFTY])
        return server

    return start


async def post(server, value=None, *, headers=None):
    body = {"capability": "test.think", "input": value or {}}
    return await server.client.post("/v1/jobs", json=body, headers=headers)


async def budgets(server, **headers):
    answer = await server.client.get("/v1/budgets", headers=headers)
    assert 200 == answer.status_code, answer.text
    return answer.json()


async def test_over_budget_is_429_with_all_there_is_to_know(thrifty):
    server = await thrifty(works=False)
    taken = [await post(server) for _ in range(2)]
    refused = await post(server)
    jobs = await server.client.get("/v1/jobs")

    told = refused.json()
    assert [202, 202] == [answer.status_code for answer in taken]
    assert 429 == refused.status_code
    assert ("BUDGET_EXHAUSTED", True) == (told["code"], told["retryable"])
    assert {
        "scope": "user",
        "unit": "tokens",
        "limit": 50,
        "left": 10,
        "per_seconds": DAY,
    } == told["budget"]
    seconds = int(refused.headers["Retry-After"])
    assert 0 < seconds <= DAY
    assert seconds == told["retry_after"]
    assert f'"budget";q=50;w={DAY}' == refused.headers["RateLimit-Policy"]
    assert f'"budget";r=10;t={seconds}' == refused.headers["RateLimit"]
    assert 2 == len(jobs.json()["items"]), "what is refused is not queued"


async def test_a_budget_shows_what_is_held_settled_and_overdrawn(thrifty):
    server = await thrifty()
    await server.ended((await post(server, {"uses": 5})).json())
    await server.ended((await post(server, {"uses": 30})).json())
    [shown] = (await budgets(server))["items"]

    counts = {name: shown[name] for name in ("held", "settled", "overdraft", "left")}
    assert {"held": 0, "settled": 35, "overdraft": 10, "left": 15} == counts
    assert ("user", "default/1", "tokens", 50) == (
        shown["scope"],
        shown["of"],
        shown["unit"],
        shown["limit"],
    )
    assert shown["window_start"] < shown["window_end"]


async def test_a_retry_of_a_dead_letter_may_be_over_budget(thrifty):
    server = await thrifty()
    dead = await server.ended((await post(server, {"fails": 1, "uses": 20})).json())
    await server.backburner.engine.store.put_budgets([Budget("user", tokens=39)])
    one = await server.client.post(f"/v1/jobs/{dead['id']}/retry")
    all_ = await server.client.post("/v1/dead-letters/retry", json={"dry_run": False})
    found = await server.client.get(f"/v1/jobs/{dead['id']}")
    await server.backburner.engine.store.put_budgets([Budget("user", tokens=40)])
    again = await server.client.post(f"/v1/jobs/{dead['id']}/retry")

    assert "failed" == dead["state"]
    assert [429, 429] == [one.status_code, all_.status_code]
    assert ("failed", 0) == (found.json()["state"], found.json()["generation"])
    assert 202 == again.status_code


async def test_flows_and_batches_are_all_or_nothing(thrifty):
    server = await thrifty(works=False)
    step = {"capability": "test.think", "input": {}}
    steps = [{"name": name, **step} for name in "abc"]
    flow = await server.client.post("/v1/flows", json={"steps": steps})
    batch = await server.client.post("/v1/batches", json={"jobs": [step] * 3})
    jobs = await server.client.get("/v1/jobs")

    assert [429, 429] == [flow.status_code, batch.status_code]
    assert [] == jobs.json()["items"]


async def test_a_repeat_under_a_key_is_answered_though_nothing_is_left(thrifty):
    server = await thrifty(Budget("user", tokens=20), works=False)
    key = {"Idempotency-Key": "k"}
    first = await post(server, headers=key)
    again = await post(server, headers=key)
    other = await post(server, headers={"Idempotency-Key": "other"})

    assert [202, 202, 429] == [a.status_code for a in (first, again, other)]
    assert first.json() == again.json()


async def test_each_key_has_a_budget_of_its_own(thrifty):
    server = await thrifty(Budget("key", tokens=20), works=False, keyed=True)
    keys = [server.shown(await server.key()) for _ in range(2)]
    answers = [await post(server, headers=key) for key in keys for _ in range(2)]

    assert [202, 429, 202, 429] == [answer.status_code for answer in answers]


async def test_callers_see_their_own_budgets_and_operators_all(thrifty):
    server = await thrifty(FIFTY, Budget("capability", tokens=500), keyed=True)
    ann = server.shown(await server.key("acme", "jobs:read", "jobs:write", user="ann"))
    bob = server.shown(await server.key("other", "jobs:read", "jobs:write", user="bob"))
    boss = server.shown(await server.key())
    await post(server, headers=ann)

    hers, his = await budgets(server, **ann), await budgets(server, **bob)
    all_ = await budgets(server, **boss)
    assert [("acme/ann", 30)] == [(b["of"], b["left"]) for b in hers["items"]]
    assert [("other/bob", 50)] == [(b["of"], b["left"]) for b in his["items"]]
    assert [] == hers["budgets"]
    assert ["test.think", "acme/ann"] == [b["of"] for b in all_["items"]]
    assert [("capability", None, 500), ("user", None, 50)] == [
        (b["scope"], b["of"], b["limit"]) for b in all_["budgets"]
    ]


async def history(server, headers=None, **named):
    params = {"scope": "user", **named}
    path = "/v1/budgets/history"
    return await server.client.get(path, params=params, headers=headers)


@BOTH
async def test_a_history_has_the_samples_and_the_state_now(thrifty):
    server = await thrifty(Budget("user", tokens=50), Budget("tenant", money=ONE))
    store = server.backburner.engine.store
    await server.ended((await post(server, {"uses": 5})).json())
    sampled = await store.sample_accounts(limit=9)
    await server.ended((await post(server, {"uses": 30})).json())
    [shown, _] = sorted(
        (await budgets(server))["items"], key=lambda b: b["unit"] != "tokens"
    )
    tokens = (await history(server, of="default/1")).json()
    money = (await history(server, scope="tenant", of="default", unit="money")).json()

    assert sampled >= 1
    told = [(p["settled"], p["held"], p["limit"]) for p in tokens["points"]]
    assert [(5, 0, 50), (35, 0, 50)] == told
    times = [point["at"] for point in tokens["points"]]
    assert shown["window_start"] <= times[0] <= times[1] < shown["window_end"]
    assert (DAY // 48, shown["window_start"], shown["window_end"]) == (
        tokens["every_seconds"],
        tokens["window_start"],
        tokens["window_end"],
    )
    assert "1.000000" == money["points"][-1]["limit"]


async def test_a_history_is_shown_to_those_who_see_the_budget(thrifty):
    server = await thrifty(FIFTY, Budget("capability", tokens=500), keyed=True)
    ann = server.shown(await server.key("acme", "jobs:read", "jobs:write", user="ann"))
    bob = server.shown(await server.key("acme", "jobs:read", "jobs:write", user="bob"))
    boss = server.shown(await server.key())
    await post(server, headers=ann)
    of_ann = [await history(server, who, of="acme/ann") for who in (ann, bob, boss)]
    shared = {"scope": "capability", "of": "test.think"}
    of_all = [await history(server, who, **shared) for who in (ann, boss)]
    wrong = [await history(server, boss), await history(server, boss, of="no/one")]

    assert [200, 404, 200] == [answer.status_code for answer in of_ann]
    assert [404, 200] == [answer.status_code for answer in of_all]
    assert [422, 404] == [answer.status_code for answer in wrong]
    assert "BUDGET_NOT_FOUND" == of_ann[1].json()["code"]


async def test_an_operator_sets_and_drops_budgets_and_the_log_tells(thrifty):
    server = await thrifty(works=False, keyed=True)
    boss = server.shown(await server.key())
    clerk = server.shown(await server.key("default", "jobs:read", "jobs:write"))
    said = {"scope": "user", "of": "default/1", "tokens": 20}
    forbidden = await server.client.put("/v1/budgets", json=said, headers=clerk)
    put = await server.client.put("/v1/budgets", json=said, headers=boss)
    answers = [await post(server, headers=boss) for _ in range(2)]
    which = {"scope": "user", "of": "default/1"}
    dropped = [
        await server.client.delete("/v1/budgets", params=which, headers=boss)
        for _ in range(2)
    ]
    after = await post(server, headers=boss)
    audit = await server.client.get("/v1/audit", headers=boss)

    assert (403, 200) == (forbidden.status_code, put.status_code)
    assert [None, "default/1"] == [b["of"] for b in put.json()["budgets"]]
    assert [202, 429] == [answer.status_code for answer in answers]
    assert [200, 404] == [answer.status_code for answer in dropped]
    assert 202 == after.status_code, "the general budget holds again"
    acts = [entry["action"] for entry in audit.json()["items"]]
    assert ["budget.dropped", "budget.dropped", "budget.set"] == acts[:3]


async def test_money_is_written_as_dollars(thrifty):
    server = await thrifty(works=False)
    said = {"scope": "tenant", "money": "1.50", "per_seconds": 3600}
    put = await server.client.put("/v1/budgets", json=said)
    shown = {b["scope"]: b for b in put.json()["budgets"]}["tenant"]

    assert ("money", "1.500000", 3600) == (
        shown["unit"],
        shown["limit"],
        shown["per_seconds"],
    )


@pytest.mark.parametrize(
    "said",
    [
        {"scope": "user"},
        {"scope": "user", "tokens": 1, "money": "1"},
        {"scope": "planet", "tokens": 1},
        {"scope": "user", "tokens": -1},
        {"scope": "user", "tokens": 1, "per_seconds": 0},
        {"scope": "user", "money": "0.0000001"},
        {"scope": "user", "tokens": 1, "of": ""},
    ],
)
async def test_a_budget_that_makes_no_sense_is_refused(thrifty, said):
    server = await thrifty(works=False)
    answer = await server.client.put("/v1/budgets", json=said)

    assert (422, "INVALID_INPUT") == (answer.status_code, answer.json()["code"])


async def test_metrics_tell_what_is_held_and_refused(thrifty):
    server = await thrifty(works=False)
    for _ in range(3):
        await post(server)
    told = (await server.client.get("/metrics")).text

    held = 'backburner_budget_amount{kind="held",scope="user",unit="tokens"} 40.0'
    assert held in told
    assert 'backburner_budget_refused_total{scope="user",unit="tokens"}' in told


UNWRITABLE = {
    "no entries": "DROP TABLE entries",
    "no holds": "DROP TABLE holds",
    "no accounts": "DROP TABLE accounts",
    "no budgets": "DROP TABLE budgets",
}
RAISING = {
    "sqlite": [
        """
        CREATE TRIGGER locked BEFORE INSERT ON entries
        BEGIN SELECT RAISE(ABORT, 'the ledger is locked'); END
        """
    ],
    "postgresql": [
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN RAISE 'the ledger is locked'; END $$
        """,
        """
        CREATE TRIGGER locked BEFORE INSERT ON entries
        FOR EACH ROW EXECUTE FUNCTION refuse()
        """,
    ],
}


async def damage(server, fault):
    """Make the ledger unwritable, and have the process look at it anew."""

    def body(tx):
        raising = RAISING[tx.connection.dialect.name]
        for statement in [UNWRITABLE[fault]] if fault in UNWRITABLE else raising:
            tx.connection.execute(sa.text(statement))

    await server.backburner.engine.store.transact(body)
    server.backburner.engine.store.rulebook.forget()


async def mend(server):
    """Take the trigger away."""

    def body(tx):
        on = "" if tx.connection.dialect.name == "sqlite" else " ON entries"
        tx.connection.execute(sa.text(f"DROP TRIGGER locked{on}"))

    await server.backburner.engine.store.transact(body)


@BOTH
@pytest.mark.parametrize("fault", [*UNWRITABLE, "a trigger that raises"])
async def test_a_ledger_that_cannot_be_written_refuses(thrifty, fault):
    server = await thrifty(works=False)
    before = await post(server)
    await damage(server, fault)
    during = [await post(server) for _ in range(2)]
    store = server.backburner.engine.store
    jobs = await store.jobs(JobFilter(), before=None, limit=9)

    assert 202 == before.status_code
    assert [(503, "STORE_UNAVAILABLE")] * 2 == [
        (answer.status_code, answer.json()["code"]) for answer in during
    ], "a ledger that cannot be written must not wave anybody through"
    assert 1 == len(jobs)


@BOTH
async def test_a_job_ends_when_the_ledger_can_be_written_again(serve):
    gate = asyncio.Event()

    @capability("test.ponder", queue="demo", tokens=20)
    async def ponder(_ctx: Context, _value: None) -> None:
        await gate.wait()

    server = await serve(capabilities=[ponder])
    await server.backburner.engine.store.put_budgets([FIFTY])
    asked = {"capability": "test.ponder", "input": None}
    job = (await server.client.post("/v1/jobs", json=asked)).json()
    await damage(server, "a trigger that raises")
    gate.set()
    await server.until(lambda: "settle failed" in server.log.getvalue())
    stuck = await server.client.get(job["links"]["self"])
    await mend(server)
    ended = await server.ended(job)
    [state] = await server.backburner.budgets.accounts()

    assert "running" == stuck.json()["state"]
    assert "succeeded" == ended["state"]
    assert Balance(settled=20) == state.balance


@BOTH
async def test_a_new_budget_holds_in_a_process_that_started_before_it(serve, store_url):
    old = await serve(capabilities=[think], works=False)
    other = await serve(capabilities=[think], works=False)
    assert 202 == (await post(old)).status_code
    await other.backburner.engine.store.put_budgets([Budget("user", tokens=0)])
    elapsed = old.backburner.engine.store.rulebook
    await old.until(lambda: elapsed.is_stale)

    assert 429 == (await post(old)).status_code
    assert store_url


@BOTH
async def test_something_is_held_without_a_job(thrifty):
    backburner = (await thrifty(works=False)).backburner
    reservation = await backburner.budgets.reserve(30)
    held = (await backburner.budgets.accounts())[0].balance
    settled = await backburner.budgets.settle(reservation.id, 12)
    after = (await backburner.budgets.accounts())[0].balance

    assert 30 == reservation.tokens_reserved
    assert 0 == reservation.window_start % (DAY * 1000)
    assert (Balance(held=30), Balance(settled=12)) == (held, after)
    assert settled
