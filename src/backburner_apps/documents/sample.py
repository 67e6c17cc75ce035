"""The sample document of `backburner demo`."""

from typing import Final

import sqlalchemy as sa

from backburner import AppBlob, Backburner, Owner, Transaction, View
from backburner_apps.documents.shapes import Confirmation
from backburner_apps.documents.states import UPLOADED
from backburner_apps.documents.tables import files
from backburner_apps.documents.uploads import APP, add_file, open_batch, queue_file

OWNER: Final = Owner("default", "1")
NAME: Final = "welcome.md"
CONTENT: Final = b"""# Welcome to documents

Upload PDF, Word, Excel, PowerPoint, HTML, Markdown, CSV and text files in batches.
Each file is extracted, split into chunks and embedded; then it can be searched.

A file that fails is kept as a dead letter with its stage, and can be retried there.
"""
HOUR: Final = 3_600_000


async def make(bb: Backburner) -> None:
    """Upload the sample document unless it exists."""
    if await bb.read(_is_there):
        return
    batch_id, file_id = bb.engine.draw("uploads"), bb.engine.draw("file")
    row = {
        "id": file_id,
        "tenant": OWNER.tenant,
        "user": OWNER.user,
        "batch_id": batch_id,
        "name": NAME,
        "size": len(CONTENT),
        "status": UPLOADED,
        "upload": bb.engine.draw("upload"),
        "version": 0,
    }

    def queue(tx: Transaction, blob: AppBlob) -> None:
        open_batch(tx, OWNER, batch_id, 1)
        add_file(tx, OWNER, row, HOUR)
        queue_file(tx, file_id, blob, Confirmation(size=len(CONTENT)), {})

    await bb.blobs(APP, OWNER).write(CONTENT, also=queue)


def _is_there(view: View) -> bool:
    mine = files.c.tenant == OWNER.tenant, files.c.user == OWNER.user
    found = sa.select(files.c.id).where(*mine, files.c.name == NAME).limit(1)
    return view.connection.execute(found).first() is not None
