"""The tables of `notes`: the notes, and a search index derived from them."""

from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from backburner import Owner, Transaction, erase_rows

notes = sa.Table(
    "notes_notes",
    sa.MetaData(),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("words", sa.Integer),
    sa.Column("extra", sa.JSON(none_as_null=True)),
)
ADD = {
    "sqlite": "INSERT INTO notes_search (id, text) VALUES (:id, :text)",
    "postgresql": "INSERT INTO notes_search VALUES (:id, to_tsvector(:text))",
}
FOUND = {
    "sqlite": "SELECT id FROM notes_search WHERE notes_search MATCH :words",
    "postgresql": "SELECT id FROM notes_search WHERE text @@ plainto_tsquery(:words)",
}


def add(tx: Transaction, owner: Owner, text: str) -> str:
    """Store a note and its entry in the index; return its id."""
    note, connection = f"note_{uuid4().hex}", tx.connection
    row = {
        "id": note,
        "tenant": owner.tenant,
        "user": owner.user,
        "text": text,
        "extra": {"length": len(text)},
    }
    connection.execute(notes.insert(), row)
    connection.execute(sa.text(ADD[name_of(connection)]), row)
    return note


def name_of(connection: Any) -> str:
    """Return the name of a connection's kind of database."""
    return str(connection.dialect.name)


def found(connection: Any, words: str) -> list[str]:
    """Return the ids of the notes with these words."""
    # Quoted as a phrase: otherwise SQLite interprets operators.
    asked = f'"{words}"' if name_of(connection) == "sqlite" else words
    query = sa.text(FOUND[name_of(connection)])
    return [*connection.execute(query, {"words": asked}).scalars()]


def rebuild(connection: Any) -> None:
    """Rebuild the index from the notes that `backburner move` has copied."""
    connection.execute(sa.text("DELETE FROM notes_search"))
    rows = connection.execute(sa.select(notes.c.id, notes.c.text)).mappings().all()
    if rows:
        connection.execute(sa.text(ADD[name_of(connection)]), [*map(dict, rows)])


def erase(tx: Transaction, owner: Owner, limit: int) -> int:
    """Delete notes of a user and their entries in the index."""
    mine = notes.c.tenant == owner.tenant, notes.c.user == owner.user
    ids = sa.select(notes.c.id).where(*mine).order_by(notes.c.id).limit(limit)
    search = sa.table("notes_search", sa.column("id"))
    tx.connection.execute(sa.delete(search).where(search.c.id.in_(ids)))
    return erase_rows(tx, notes, owner, limit)
