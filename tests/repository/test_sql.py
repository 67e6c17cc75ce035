"""One statement, one file, one name."""

import ast
from dataclasses import fields
from importlib.resources import files
from pathlib import Path

import pytest

from backburner.stores.postgres.queries import Queries as PostgresQueries
from backburner.stores.sqlite.queries import Queries


def names(package):
    folder = files(f"backburner.stores.{package}") / "queries"
    return {p.name.removesuffix(".sql") for p in folder.iterdir()}


@pytest.mark.parametrize(
    ("package", "queries"), [("sqlite", Queries), ("postgres", PostgresQueries)]
)
def test_every_file_is_a_statement_of_the_store(package, queries):
    assert {field.name for field in fields(queries)} == names(package) | names("shared")
    assert not names(package) & names("shared")


def test_shared_statements_have_the_parameters_of_their_database():
    assert "?1" in Queries.load().list_held
    assert "$1" in PostgresQueries.load().list_held


def test_no_statement_selects_everything():
    queries = Queries.load()
    greedy = [
        field.name
        for field in fields(queries)
        if "*" in getattr(queries, field.name).replace("count(*)", "")
    ]

    assert [] == greedy


SOURCES = Path(__file__).parents[2] / "src"
STATEMENTS = {"exec_driver_sql", "literal_column", "text"}
SHARED, MOVE = "backburner/stores/shared", "backburner/stores/move"
POSTGRES, DOCUMENTS = "backburner/stores/postgres", "backburner_apps/documents"
ASSEMBLED = {
    f"{MOVE}/contents.py _last_drawn": "the name of a sequence",
    f"{MOVE}/contents.py analyse": "names of tables",
    f"{MOVE}/contents.py index_names": "a constant",
    f"{MOVE}/notice.py fence": "names of tables, and constants",
    f"{MOVE}/notice.py unfence": "names of triggers",
    f"{POSTGRES}/side.py alive": "a file of `queries`",
    f"{POSTGRES}/statements.py _known": "a file of `queries`",
    f"{POSTGRES}/statements.py pace": "a file of `queries`",
    f"{POSTGRES}/statements.py rows": "files of `queries`",
    f"{SHARED}/dead_letter_exports.py": "a constant",
    f"{SHARED}/event_streams.py": "constants",
    f"{SHARED}/job_filters.py in_states": "values of `JobState`",
    f"{SHARED}/paging.py _halving": "names of tables and columns",
    f"{SHARED}/paging.py unindexed": "names of tables",
    f"{SHARED}/prospects.py _crowd": "values of `JobState`",
    f"{SHARED}/prospects.py _released": "a value of `Kind`",
    f"{SHARED}/retention.py": "constants",
    f"{SHARED}/timetable.py": "constants",
    "backburner/tables.py _take": "the name of a table that a program declares",
    f"{DOCUMENTS}/full_text.py find": "names of the fields of `Filters`, and numbers",
    f"{DOCUMENTS}/pgvector.py": "constants",
    f"{DOCUMENTS}/pgvector.py _complete": "constants",
    f"{DOCUMENTS}/pgvector.py _create": "constants",
    f"{DOCUMENTS}/pgvector.py _drop": "a constant",
    f"{DOCUMENTS}/pgvector.py nearest": "names of the fields of `Filters`",
}
"""Functions that run a statement that is not one literal text; what it is made of."""


def assembled(file):
    """Return the functions of a file that run a text that is not a literal."""
    found = set()

    def look(node, function):
        for child in ast.iter_child_nodes(node):
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            look(child, child.name if is_function and not function else function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_ours = node.func.attr != "text" or ast.unparse(node.func.value) == "sa"
            is_literal = node.args and isinstance(node.args[0], ast.Constant)
            if node.func.attr in STATEMENTS and is_ours and not is_literal:
                found.add(function)

    look(ast.parse(file.read_text("utf-8")), "")
    name = file.relative_to(SOURCES).as_posix()
    return {f"{name} {function}".strip() for function in found}


def test_statements_are_assembled_only_of_texts_that_no_caller_chooses():
    # Migrations and the tests of stores have no callers.
    files = [
        file
        for file in SOURCES.rglob("*.py")
        if not {"migrations", "testing"} & {*file.parts}
    ]

    assert set(ASSEMBLED) == set().union(*map(assembled, files))
