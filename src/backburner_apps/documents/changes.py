"""Changes of files: each a compare-and-set, published in the same transaction."""

from typing import Any

import sqlalchemy as sa

from backburner import Owner, Transaction, View
from backburner.tables import owned_by
from backburner_apps.documents import batches
from backburner_apps.documents.tables import Row, files

f = files.c


def find(view: View, file_id: str) -> Row | None:
    """Return a file's row, of any owner."""
    statement = sa.select(files).where(f.id == file_id)
    found: Row | None = view.connection.execute(statement).one_or_none()
    return found


def find_own(view: View, owner: Owner, file_id: str) -> Row | None:
    """Return the row of a file of a user."""
    statement = sa.select(files).where(f.id == file_id, owned_by(files, owner))
    found: Row | None = view.connection.execute(statement).one_or_none()
    return found


def update(tx: Transaction, file: Row, **values: Any) -> bool:
    """Write to a file's row unless it has changed since it was read."""
    statement = (
        files.update()
        .where(f.id == file.id, f.status == file.status, f.version == file.version)
        .values(version=file.version + 1, updated_at=tx.now(), **values)
    )
    return bool(tx.connection.execute(statement).rowcount == 1)


def move(tx: Transaction, file: Row, to: str, **values: Any) -> bool:
    """Change a file's state and publish it; `False` if it has changed meanwhile."""
    if not update(tx, file, status=to, **values):
        return False
    publish(tx, file, file.status, to, **values)
    return True


def publish(tx: Transaction, file: Row, before: str, to: str, **values: Any) -> None:
    """Publish `file:status-changed` to the owner."""
    data = {"fileId": file.id, "from": before, "to": to, "batchId": file.batch_id}
    count = values.get("chunk_count", file.chunk_count)
    if values.get("error") is not None:
        data["error"] = values["error"]
    if count is not None:
        data["chunkCount"] = count
    owner = batches.owner_of(file)
    tx.publish(batches.topic(file.batch_id), "file:status-changed", data, to=owner)
