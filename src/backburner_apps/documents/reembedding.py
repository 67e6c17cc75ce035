"""
Embeds a user's files with the configured model, as a batch of jobs.

Vectors of other models stay until all files have been embedded. A search compares only
vectors of the configured model; chunks without one are found by keywords.
"""

from datetime import timedelta
from typing import Final

import sqlalchemy as sa
from pydantic import BaseModel

from backburner import Context, Owner, Transaction, View, capability
from backburner.tables import owned_by
from backburner_apps.documents.chunk_store import lock_owner
from backburner_apps.documents.chunk_tables import chunks, owners, vectors
from backburner_apps.documents.embed_work import QUEUE, embed_missing, model_of

FILES: Final = 500
"""Number of files that one transaction adds to the batch."""
ROWS: Final = 500
"""Number of vectors that one transaction deletes."""
LONGEST: Final = timedelta(hours=1)


class Scope(BaseModel):
    """Whose files are embedded again."""

    tenant: str
    user: str | None = None
    """`None` means all users of the tenant."""


@capability("documents.reembed-file", queue=QUEUE, timeout=LONGEST)
async def reembed_file(ctx: Context, file_id: str) -> int:
    """Embed the chunks of a file that have no vector of the configured model."""
    return await embed_missing(ctx, ctx.job.owner, file_id)


@capability("documents.reembed", queue=QUEUE, timeout=LONGEST)
async def reembed(ctx: Context, scope: Scope) -> list[str]:
    """Open a batch for each user of a scope; return the ids of the batches."""
    all_users = scope.user is None
    users = await ctx.read(_users, scope.tenant) if all_users else [scope.user or ""]
    return [await _open(ctx, Owner(scope.tenant, user)) for user in users]


@capability("documents.reembedded", queue=QUEUE, timeout=LONGEST)
async def drop_others(ctx: Context, model: str | None) -> int:
    """Delete vectors of other models than this one, of texts that it has embedded."""
    count = 0
    if model is None:
        return 0
    while found := await ctx.transact(_drop, ctx.job.owner, model):
        count += found
    return count


async def _open(ctx: Context, owner: Owner) -> str:
    """Open a batch with a job for each file of a user; safe to repeat."""
    after, key = "", f"{ctx.job.id}:{owner.user}"
    # The model of this worker: another one may not have the new settings yet.
    end = {"capability": drop_others, "input": model_of(ctx)}

    def begin(tx: Transaction) -> str:
        opened = tx.open_batch(
            completion=end, sealed=False, owner=owner, idempotency_key=key
        )
        return opened.id

    batch_id = await ctx.transact(begin)

    def fill(tx: Transaction, files: list[str], after: str, *, seal: bool) -> None:
        jobs = [(reembed_file, file_id) for file_id in files]
        repeat = f"{key}:{after}"
        tx.add_to_batch(batch_id, jobs, seal=seal, owner=owner, idempotency_key=repeat)

    while True:
        files = await ctx.read(_files, owner, after)
        is_last = len(files) < FILES
        await ctx.transact(fill, files, after, seal=is_last)
        if is_last:
            return batch_id
        after = files[-1]


def _users(view: View, tenant: str) -> list[str]:
    query = sa.select(owners.c.user).where(owners.c.tenant == tenant)
    return [row[0] for row in view.connection.execute(query.order_by(owners.c.user))]


def _files(view: View, owner: Owner, after: str) -> list[str]:
    query = (
        sa.select(chunks.c.file_id)
        .where(owned_by(chunks, owner), chunks.c.file_id > after)
        .distinct()
        .order_by(chunks.c.file_id)
        .limit(FILES)
    )
    return [row[0] for row in view.connection.execute(query)]


def _drop(tx: Transaction, owner: Owner, model: str) -> int:
    """Delete some vectors of other models for texts that this model has embedded."""
    lock_owner(tx, owner)
    v, newer = vectors.c, vectors.alias("newer")
    has_new = sa.select(newer.c.model).where(
        newer.c.tenant == v.tenant,
        newer.c.user == v.user,
        newer.c.content_hash == v.content_hash,
        newer.c.model == model,
    )
    some = (
        sa.select(v.content_hash, v.model)
        .where(owned_by(vectors, owner), v.model != model, has_new.exists())
        .limit(ROWS)
    )
    found = [tuple(row) for row in tx.connection.execute(some)]
    if found:
        key = sa.tuple_(v.content_hash, v.model)
        tx.connection.execute(
            vectors.delete().where(owned_by(vectors, owner), key.in_(found))
        )
    return len(found)


OWN: Final = (reembed, reembed_file, drop_others)
"""The capabilities that an application needs for this."""
