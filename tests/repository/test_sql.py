"""One statement, one file, one name."""

from dataclasses import fields
from importlib.resources import files

from backburner.stores.sqlite.queries import Queries


def test_every_file_is_a_statement_of_the_store():
    folder = files("backburner.stores.sqlite") / "queries"
    on_disk = {p.name.removesuffix(".sql") for p in folder.iterdir()}

    assert {field.name for field in fields(Queries)} == on_disk


def test_no_statement_selects_everything():
    queries = Queries.load()
    greedy = [
        field.name
        for field in fields(queries)
        if "*" in getattr(queries, field.name).replace("count(*)", "")
    ]

    assert [] == greedy
