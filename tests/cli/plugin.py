"""A plug-in application with tables of its own, installed where a test wants it."""

from pathlib import Path

APP = """
from contextlib import asynccontextmanager

import sqlalchemy as sa
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from backburner import App, Context, capability

metadata = sa.MetaData()
orders = sa.Table(
    "shop_orders", metadata, sa.Column("id", sa.Text, primary_key=True)
)


@capability("shop.order", queue="shop")
async def order(ctx: Context, value: str) -> str:
    ctx.at_settlement(lambda tx: tx.connection.execute(orders.insert(), {"id": value}))
    return value


@asynccontextmanager
async def serves(backburner):
    async def list_orders(request):
        query = sa.select(orders)
        rows = await backburner.read(lambda view: view.connection.execute(query).all())
        return PlainTextResponse(",".join(row.id for row in rows))

    yield [Route("/shop/orders", list_orders)]


app = App(
    "shop",
    capabilities=[order],
    serves=serves,
    migrations="shop.migrations",
    tables=lambda: [orders],
)
"""
REVISION = """
import sqlalchemy as sa
from alembic import op

revision = "{revision}"
down_revision = {down!r}


def upgrade():
    {body}
"""
FIRST = 'op.create_table("shop_orders", sa.Column("id", sa.Text, primary_key=True))'
SEED = "op.execute(\"INSERT INTO shop_orders VALUES ('made')\")"
BROKEN = 'op.execute("INSERT INTO no_such_table VALUES (1)")'
METADATA = "Metadata-Version: 2.1\nName: shop\nVersion: 1\n"
ENTRY = "[backburner.apps]\nshop = shop:app\n"


def install(folder: Path, *bodies: str, app: str = APP) -> Path:
    """Put the application there, with a revision for each body; return its package."""
    package = folder / "shop"
    versions = package / "migrations" / "versions"
    versions.mkdir(parents=True)
    (package / "__init__.py").write_text(app)
    (package / "migrations" / "__init__.py").touch()
    for number, body in enumerate(bodies, start=1):
        revise(package, number, body)
    info = folder / "shop-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY)
    return package


def revise(package: Path, number: int, body: str) -> None:
    """Write a revision, or write it anew."""
    down = f"{number - 1:04}" if number > 1 else None
    text = REVISION.format(revision=f"{number:04}", down=down, body=body)
    (package / "migrations" / "versions" / f"{number:04}.py").write_text(text)
