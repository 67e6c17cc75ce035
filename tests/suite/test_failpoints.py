"""Every place where a process can be ended on purpose is one where one is ended."""

import ast
from pathlib import Path

from backburner.testing.simulation.fate import FAILPOINTS

PROJECT = Path(__file__).parents[2]
SOURCE = PROJECT / "src" / "backburner"
CRASHING = ("tests/faults", "tests/cli")
"""Where a failpoint is named to a real process, which ends there."""
COMMITS = ("before_commit", "after_commit")
IN_TURN = (
    "a move is ended at its n-th failpoint, for many n, in tests/store/test_move.py"
)
LANE = "what a lane counts is not durable: to end there is to end before or after"
NOT_CRASHED = {
    "dead_letter_export.written": "tests/engine/foreign: it ends the export there",
    "ledger.resumed": "as ledger.reserved; simulated jobs call no model",
    "move.arrived": IN_TURN,
    "move.compared": IN_TURN,
    "move.copying": IN_TURN,
    "move.emptied": IN_TURN,
    "pace.after_commit": LANE,
    "pace.before_commit": LANE,
    "step.forked": "a fork is stored as any job is: submit_jobs is ended around it",
}
"""Those that no process of a fault test and no simulated one ends at, and why."""
MADE = {
    "stores/move/mover.py: f'move.{name}'",
    "stores/postgres/pipe.py: f'{name}.after_commit'",
    "stores/postgres/pipe.py: f'{name}.before_commit'",
    "stores/postgres/store.py: f'{verb}.after_commit'",
    "stores/postgres/store.py: f'{verb}.before_commit'",
    "stores/sqlite/transaction.py: f'{name}.{moment}'",
}
"""Names that are put together as it runs; `failpoints` knows of what."""


def calls_in(path, name):
    """Yield the arguments of the calls of a function or method."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called == name:
                yield node.args


def verbs():
    """Return the names of transactions: each has failpoints around its commit."""
    sqlite = calls_in(SOURCE / "stores" / "sqlite" / "store.py", "_write")
    postgres = calls_in(SOURCE / "stores" / "postgres" / "store.py", "_commit")
    names = {getattr(a, "attr", getattr(a, "id", "")) for a, *_ in sqlite}
    names |= {a.value for a, *_ in postgres if isinstance(a, ast.Constant)}
    return names - {""}


def failpoints():
    """Return every failpoint of the source, and those whose names are put together."""
    steps = calls_in(SOURCE / "stores" / "move" / "mover.py", "_step")
    names = {f"{verb}.{moment}" for verb in verbs() for moment in COMMITS}
    names |= {f"move.{name.value}" for *_, name in steps}
    made = set()
    for path in SOURCE.rglob("*.py"):
        for argument, *_ in calls_in(path, "hit"):
            if isinstance(argument, ast.Constant):
                names.add(argument.value)
            elif isinstance(argument, ast.JoinedStr):
                made.add(f"{path.relative_to(SOURCE)}: {ast.unparse(argument)}")
    return names, made


def crashed():
    """Return what the simulation ends at, and what fault tests name."""
    named = {
        node.value.partition(":")[0]
        for folder in CRASHING
        for path in (PROJECT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return named | set(FAILPOINTS)


def test_every_failpoint_is_crashed_somewhere_or_said_why_not():
    names, _ = failpoints()

    assert set(NOT_CRASHED) == names - crashed()


def test_no_failpoint_is_listed_that_is_not_there():
    names, made = failpoints()

    assert set() == set(FAILPOINTS) - names
    assert made == MADE
