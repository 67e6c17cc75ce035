"""Stores to move, and rows to fill them with: as odd as a schema allows."""

import random
import sqlite3
from contextlib import closing
from datetime import timedelta

import sqlalchemy as sa

from backburner.adapters import find_store
from backburner.clock import SystemClock
from backburner.ports.faults import NoFaults
from backburner.stores.move import contents
from backburner.stores.move.mover import Mover, Options

LEASE = timedelta(seconds=10)
TEXTS = (
    "",
    " ",
    "plain",
    "Ärger, 東京, 🏠",
    "a\tb\nc\r\n\\N\\.",
    "'\"; --",
    '{"a": [1, 2.50, null, "\\u0000"]}',
    "@blob:job_1.input:70000",
    "Z",
    "z",
    "é",
    "e\u0301",
    "\ufeff",
    "\u200b",
    "x" * 5_000,
)
FINAL = ("succeeded", "failed", "cancelled")
MOST = {sa.BigInteger: 2**63, sa.SmallInteger: 2**15, sa.Integer: 2**31}


def a_store(url):
    """Return a store that is not open."""
    return find_store(str(url), SystemClock(), NoFaults())


async def read(store, body):
    """Read past the engine."""
    side = store.side()
    try:
        return await side.read(body)
    finally:
        await side.close()


async def write(store, body):
    """Write past the engine, in one transaction."""
    side = store.side()
    try:
        return await side.transact(body)
    finally:
        await side.close()


async def moved(source, target, *, faults=None, tell=None, name="move_1", **options):
    """Move one store into another, in small chunks; return what arrived."""
    options = Options(**{"lease": LEASE, "chunk": 7, **options})
    told = tell or (lambda *_: None)
    mover = Mover(source, target, options, faults or NoFaults(), told)
    return await mover.run(name)


async def fill(store, seed, count=9):
    """Put odd rows into every table that moves; number beyond the highest."""
    dice = random.Random(seed)

    def insert(connection):
        for table in contents.MOVED:
            rows = [a_row(table, number, dice) for number in range(1, count + 1)]
            connection.execute(table.insert(), rows)
        highest = {table.name: 10_000 for table in contents.MOVED}
        contents.set_counters(connection, contents.MOVED, highest)

    await write(store, insert)


def a_row(table, number, dice):
    """Return a row of any table; texts that must differ carry its number."""
    row = {column.name: _value(column, number, dice) for column in table.columns}
    return row | _SENSE.get(table.name, lambda _row, _dice: {})(row, dice)


def _value(column, number, dice):
    if column.nullable and dice.random() < 0.3:
        return None
    if isinstance(column.type, sa.Boolean):
        return dice.random() < 0.5
    if not isinstance(column.type, sa.Integer):
        text = dice.choice(TEXTS)
        return f"{text}{number}" if _is_name(column) else text
    if column.primary_key:
        return number * 3
    most = next(most for kind, most in MOST.items() if isinstance(column.type, kind))
    return dice.choice([0, 1, -1, most // 3, most - 1, -most, number])


def _is_name(column):
    return column.primary_key or column.name in {
        *("id", "idempotency_key", "key", "url", "step", "upload", "value"),
    }


def _job(row, dice):
    state = dice.choice(["blocked", "scheduled", "queued", "running", *FINAL])
    return {
        "state": state,
        "token": "t" if state == "running" else None,
        "worker": "w_gone" if state == "running" else None,
        "finished_at": row["created_at"] if state in FINAL else None,
        "output": row["output"] or "null",
        "run_at": row["run_at"] or 0,
    }


def _group(states):
    def sense(row, dice):
        state = dice.choice(states)
        is_over = state not in {"running", "open"}
        return {"state": state, "finished_at": row["created_at"] if is_over else None}

    return sense


def _event(row, _dice):
    return {"n": row["seq"]}


def _usage(row, _dice):
    return {
        "n": row["seq"],
        "input_tokens": 9,
        "output_tokens": 2**62,
        "cached_tokens": 9,
        "cost": row["cost"] and abs(row["cost"] // 2),
        "price_version": "1",
    }


_SENSE = {
    "jobs": _job,
    "flows": _group(["running", *FINAL]),
    "batches": _group(["open", "finished"]),
    "events": _event,
    "usages": _usage,
    "accounts": lambda _r, _d: {"held": 2**62, "settled": 7, "overdraft": 7},
    "holds": lambda _r, _d: {"amount": 2**62, "used": None},
}


def everything(path):
    """Return every row of a file as SQLite keeps it, types and counters included."""
    with closing(sqlite3.connect(path)) as connection:
        names = [
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
                " AND name NOT LIKE 'backburner_move' ORDER BY name"
            )
        ]
        return {name: _rows(connection, name) for name in names}


def _rows(connection, name):
    columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')]
    typed = ", ".join(f'"{c}", typeof("{c}")' for c in columns)
    return sorted(connection.execute(f'SELECT {typed} FROM "{name}"'), key=repr)  # noqa: S608
