"""`users erase`: all that is a user's goes, whenever it is killed; totals stay."""

import json
import shutil

import pytest
import sqlalchemy as sa

from backburner import Backburner, Flow, Owner, Settings
from backburner.demo import app as demo
from backburner.demo import echo
from backburner.engine.maintenance.erasure import digest
from tests.cli.plugin import install
from tests.store.moving import a_store, write

ERASE = ("users", "erase", "default", "ann", "--yes", "--json")
LARGE = "y" * 70_000
ANN, BOB = Owner("default", "ann"), Owner("default", "bob")
both_stores = pytest.mark.parametrize(
    "store_url", ["sqlite", "postgres"], indirect=True
)
APP = """
import sqlalchemy as sa

from backburner import App, erase_rows

metadata = sa.MetaData()
orders = sa.Table(
    "shop_orders",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("part", sa.Integer, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
)


app = App(
    "shop",
    migrations="shop.migrations",
    tables=lambda: [orders],
    erase=lambda tx, owner, limit: erase_rows(tx, orders, owner, limit),
)
"""
REVISION = "from shop import metadata; metadata.create_all(op.get_bind())"
ORDER = sa.text("INSERT INTO shop_orders VALUES (:id, :part, 'default', :user)")
USAGE = sa.text("""
INSERT INTO usages (job, generation, epoch, n, at, tenant, "user", capability, model,
                    input_tokens, output_tokens, cached_tokens, late)
SELECT seq, 1, 1, 0, created_at, tenant, "user", capability, 'm', 7, 0, 0, false
  FROM jobs
""")
WAITS = sa.text("""
INSERT INTO waits (job, generation, name, kind, outcome, value)
SELECT seq, generation, 'go', 'signal', 'signalled', '"' || "user" || '"' FROM jobs
""")
SIGNALS = sa.text("SELECT DISTINCT value FROM waits")
ACCOUNT = sa.text("""
INSERT INTO accounts (scope, unit, per, tenant, value, window_at, ceiling, held,
                      settled, overdraft)
SELECT 'user', 'tokens', 1000, 'default', 'default/ann', max(created_at), 9, 0, 7, 0
  FROM jobs
""")
FATES = ("erase.records", "erase.contents", "erase.jobs", "erase.rows", "erase.renamed")
OWNED = ("jobs", "flows", "shop_orders", "usages", "events")


def fill(connection):
    """Leave orders of two users, signals to their jobs, and what these used."""
    for number in range(300):
        user = "ann" if number % 3 else "bob"
        connection.execute(ORDER, {"id": number, "part": 1, "user": user})
    connection.execute(USAGE)
    connection.execute(WAITS)
    connection.execute(ACCOUNT)


@pytest.fixture
async def env(run, tmp_path, store_url):
    """A store whose users ann and bob have jobs, a flow, contents and orders."""
    install(tmp_path, REVISION, app=APP)
    env = {
        "BACKBURNER_STORE": store_url,
        "BACKBURNER_APPS": "shop",
        "BACKBURNER_BLOBS": f"file://{tmp_path}/blobs",
    }
    run("migrate", **env)
    async with an_instance(env) as backburner:
        await backburner.start_worker()
        for owner in (ANN, BOB):
            for text in ("short", LARGE):
                ticket = await backburner.submit(echo, {"text": text}, owner=owner)
                await ticket.result()
            flow = Flow()
            flow.add(echo, {"text": "step"})
            await (await backburner.submit_flow(flow, owner=owner)).results()
    await in_the_store(store_url, fill)
    return env


def an_instance(env):
    settings = Settings(store=env["BACKBURNER_STORE"], blobs=env["BACKBURNER_BLOBS"])
    return Backburner(settings, apps=[demo])


async def in_the_store(url, body):
    store = a_store(url)
    try:
        return await write(store, body)
    finally:
        await store.close()


def users_of(connection):
    """Return by table the users who have rows there."""
    user = sa.column("user")
    queries = {name: sa.select(user).select_from(sa.table(name)) for name in OWNED}
    return {
        name: {*connection.execute(query).scalars()} for name, query in queries.items()
    }


def signals(connection):
    return connection.execute(SIGNALS).scalars().all()


def totals(connection):
    used = sa.text("SELECT sum(input_tokens) FROM usages")
    settled = sa.text("SELECT sum(settled) FROM accounts")
    return [connection.execute(query).scalar() for query in (used, settled)]


def accounts_and_audit(connection):
    values = connection.execute(sa.text("SELECT value FROM accounts")).scalars().all()
    said = connection.execute(sa.text("SELECT action, target FROM audit")).all()
    return values, {tuple(row) for row in said}


def contents(tmp_path):
    return [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]


@both_stores
async def test_a_user_is_erased_through_kills_at_every_step(
    run, env, tmp_path, store_url
):
    before = await in_the_store(store_url, totals)
    kept = len(contents(tmp_path))
    codes = [run(*ERASE, BACKBURNER_FAULT=fate, **env).returncode for fate in FATES]
    ended = run(*ERASE, **env)
    users = await in_the_store(store_url, users_of)
    [account], said = await in_the_store(store_url, accounts_and_audit)
    again = run(*ERASE, **env)

    assert [137] * len(FATES) == codes
    assert (0, 0) == (ended.returncode, again.returncode)
    assert 0 == sum(json.loads(again.stdout).values())
    assert [{"bob"}] * 3 == [users[name] for name in ("jobs", "flows", "shop_orders")]
    assert "ann" not in users["events"] | users["usages"]
    assert ['"bob"'] == await in_the_store(store_url, signals)
    assert account.startswith("default/erased_")
    assert before == await in_the_store(store_url, totals)
    assert {("users.erase", digest(ANN))} == said
    assert kept == 2 * len(contents(tmp_path)) > 0


async def test_work_that_goes_on_stops_it_unless_it_is_to_be_cancelled(
    run, env, store_url
):
    async with an_instance(env) as backburner:
        await backburner.submit(echo, {"text": "later"}, owner=ANN)
        await backburner.open_batch([(echo, {"text": "member"})], expected=9, owner=ANN)
    refused = run(*ERASE, **env)
    before = await in_the_store(store_url, users_of)
    erased = run(*ERASE, "--cancel", **env)
    after = await in_the_store(store_url, users_of)

    assert 5 == refused.returncode
    assert "the user has 3 unfinished jobs, flows or batches" in refused.stderr
    assert {"ann", "bob"} == before["jobs"] == before["shop_orders"]
    assert 0 == erased.returncode
    assert {"bob"} == after["jobs"] == after["shop_orders"]


def test_an_application_that_is_not_installed_stops_it(run, env, tmp_path):
    shutil.rmtree(tmp_path / "shop")
    shutil.rmtree(tmp_path / "shop-1.dist-info")
    gone = {**env, "BACKBURNER_APPS": ""}
    refused = run(*ERASE, **gone)
    left = run(*ERASE, "--leave", "shop", **gone)

    assert (5, 0) == (refused.returncode, left.returncode)
    assert "tables of application 'shop', but it is not installed" in refused.stderr


def test_it_asks_before_it_erases(run, env):
    asked = run("users", "erase", "default", "ann", given="n\n", **env)

    assert 1 == asked.returncode
    assert "Erase user 'ann' of tenant 'default'" in asked.stderr
