"""One statement, one file, one name."""

from dataclasses import fields
from importlib.resources import files

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
