"""
Records the order in which PostgreSQL transactions take locks.

Statements are seen where they leave for the server: by SQLAlchemy's event and by the
driver's own methods. Each is read for the kinds of rows it locks, and for their keys as
far as its parameters or rows tell them. The order itself is the table in
ARCHITECTURE.md.
"""

import re
from collections import defaultdict
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest import mock

import asyncpg
import sqlalchemy as sa

ANY_ORDER = {"blocked step", "name"}
"""Kinds whose keys are in no order: see the table."""
LOCKING = re.compile(
    r"\b(?:for (?:update|no key update|share|key share)"
    r"(?: of (\w+))?( skip locked| nowait)?"
    r"|(?<!do )(?<!for )(?<!key )update (\w+)|insert into (\w+)|delete from (\w+)"
    r"|(pg_advisory_xact_lock|advance_flows))\b"
)
KINDS = {
    "schedules": "schedule",
    "marks": "mark",
    "batches": "batch",
    "flows": "flow",
    "queues": "queue",
    "workers": "worker",
    "jobs": "job",
    "fronts": "front",
    "accounts": "account",
}
KEYS_OF_NEW = {"flows_seq_seq": "flow", "batches_seq_seq": "batch"}
IDEMPOTENCY_KEY = 17
"""Its place among the columns of new jobs."""


def documented():
    """Return the kinds of locks in the order in which they are taken."""
    text = (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text()
    table = text.partition("<!-- locks -->")[2].partition("<!-- /locks -->")[0]
    return re.findall(r"^\| ([a-z ]+) \|", table, re.MULTILINE)[1:]


class Held:
    """The locks of one transaction."""

    def __init__(self, order):
        self._rank = {kind: place for place, kind in enumerate(order)}
        self.keys = defaultdict(list)
        self.own = defaultdict(set)
        """Rows that this transaction made: nobody else can lock them yet."""

    def take(self, kind, keys, *, waits):
        """Note a lock; return what is wrong with it, if anything is."""
        new = [key for key in keys or () if key not in self.own[kind]]
        new = [key for key in new if key not in self.keys[kind]]
        if (keys is not None and not new) or (keys is None and self.keys[kind]):
            return None
        wrong = self._misplaced(kind, new) if waits else None
        self.keys[kind] += new or [None]
        return wrong

    def _misplaced(self, kind, new):
        if kind == "blocked step" and not self.keys["flow"] + [*self.own["flow"]]:
            return "blocked step without its flow"
        later = [
            other
            for other, keys in self.keys.items()
            if keys and self._rank[other] > self._rank[kind]
        ]
        if later:
            return f"{kind} after {later[0]}"
        if kind not in ANY_ORDER and new:
            known = [key for key in self.keys[kind] if key is not None]
            if new != sorted(new) or (known and min(new) < max(known)):
                return f"{kind} {new} after {known}"
        return None


class Recorder:
    """The transactions of every connection, and the inversions among their locks."""

    def __init__(self, order=None):
        self._order = order or documented()
        self._open = {}
        self.inversions = []
        self.pairs = set()
        """Kinds that were taken one after the other in some transaction."""

    def see(self, session, sql, parameters, rows):
        """Note what a statement locked."""
        verb = sql.lstrip()[:12].upper()
        if verb.startswith("BEGIN"):
            self._open[session] = Held(self._order)
        elif verb.startswith(("COMMIT", "ROLLBACK;")):
            self._open.pop(session, None)
        elif not verb.startswith("CREATE"):
            held = self._open.get(session) or Held(self._order)
            if sql.startswith("SELECT nextval") and parameters[0] in KEYS_OF_NEW:
                held.own[KEYS_OF_NEW[parameters[0]]].update(row[0] for row in rows)
            for kind, keys, waits in locks(sql, parameters, rows):
                before = [k for k, keys_ in held.keys.items() if keys_]
                wrong = held.take(kind, keys, waits=waits)
                self.pairs.update((other, kind) for other in before if other != kind)
                if wrong:
                    self.inversions.append(f"{wrong}: {' '.join(sql.split())[:200]}")


def locks(sql, parameters, rows):  # noqa: C901, PLR0912 - a table
    """Yield what a statement locks: the kind, its keys if known, whether it waits."""
    for found, table, skips in _found(sql):
        if found == "advance_flows":
            yield "flow", parameters[4], True
            yield "job", parameters[0], True
            yield "blocked step", None, True
        elif found == "pg_advisory_xact_lock":
            is_hold = str(parameters[0]).startswith("hold\n")
            yield ("name", None, True) if is_hold else ("cap", [parameters[0]], True)
        elif table == "holds":
            if "holds.id =" in sql and not skips:
                yield "name", None, True
        elif "idempotency_key = NULL" in sql or "SET idempotency_key=" in sql:
            yield "name", None, True
        elif found.startswith("insert") and table == "jobs":
            if parameters[IDEMPOTENCY_KEY]:
                yield "name", None, True
        elif found.startswith("insert") and table in {"flows", "batches"}:
            if "ON CONFLICT" in sql:
                yield "name", None, True
        elif table in KINDS:
            kind = KINDS[table]
            if table == "batches" and "SET sealed=" in sql:
                yield kind, [parameters[1]], True
                continue
            if table == "jobs" and ("open > 0" in sql or "needs=" in sql):
                kind = "blocked step"
            yield kind, _keys(kind, found, sql, parameters, rows), not skips


@cache
def _found(sql):
    plain = " ".join(re.sub(r"--[^\n]*", "", sql).lower().split())
    found = []
    for match in LOCKING.finditer(plain):
        of, skips, updated, inserted, deleted, named = match.groups()
        table = updated or inserted or deleted or of
        if table is None and named is None:
            tables = re.findall(r"\bfrom (\w+)", plain[: match.start()])
            tables = [name for name in tables if name in {*KINDS, "holds"}]
            table = tables[0] if tables else ""
        found.append((named or match.group(0), table, bool(skips)))
    if any(skips for _, _, skips in found):
        # What a statement changes of rows that it took without waiting.
        found = [
            (verb, table, skips or table in {"jobs", "workers"})
            for verb, table, skips in found
        ]
    return found


def _keys(kind, found, sql, parameters, rows):
    if kind == "account" and found.startswith("insert"):
        return [*zip(*parameters[:6], strict=True)]
    if kind in {"account", "blocked step"}:
        return None
    if kind == "queue" and parameters and isinstance(parameters[0], str):
        return [parameters[0]]
    if isinstance(parameters, (tuple, list)) and "$1::bigint[]" in sql:
        asked = parameters[0]
        return [*asked] if isinstance(asked, list) else None
    if found.startswith("for") and rows is not None:
        return [row[0] for row in rows]
    return None


@contextmanager
def recording(order=None):
    """Record the locks of every PostgreSQL session of this process."""
    recorder = Recorder(order)

    def after(connection, cursor, sql, parameters, _context, executemany):
        if connection.dialect.name == "postgresql":
            raw = connection.connection.driver_connection
            asked = () if executemany else parameters
            recorder.see(raw, sql, asked, [*(getattr(cursor, "_rows", None) or ())])

    def watched(method):
        async def seen(self, sql, *parameters, **options):
            answer = await method(self, sql, *parameters, **options)
            recorder.see(self, sql, parameters, answer)
            return answer

        return seen

    sa.event.listen(sa.Engine, "after_cursor_execute", after)
    try:
        with (
            mock.patch.object(
                asyncpg.Connection, "fetch", watched(asyncpg.Connection.fetch)
            ),
            mock.patch.object(
                asyncpg.Connection, "execute", watched(asyncpg.Connection.execute)
            ),
        ):
            yield recorder
    finally:
        sa.event.remove(sa.Engine, "after_cursor_execute", after)
