"""Streams large inputs and outputs without holding them in memory."""

import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
from starlette.responses import Response, StreamingResponse

from backburner.domain.blobs.blob import Reference, reference
from backburner.domain.errors import BlobMissing
from backburner.domain.events.event import AttemptRecord
from backburner.domain.jobs.job import Job
from backburner.engine.blobs.payloads import Payloads
from backburner.http import wire

Piece = bytes | Reference


async def answer_whole(
    payloads: Payloads,
    job: Job,
    attempts: Sequence[AttemptRecord],
    more: Mapping[str, Any],
    headers: dict[str, str],
    *,
    with_traces: bool,
) -> Response:
    """Send a job with its input and output, whether in its row or in blobs."""
    named = [reference(job.input), reference(job.output)]
    if named == [None, None]:
        told = wire.whole(job, attempts, with_traces=with_traces)
        return wire.answer({**told, **more}, 200, headers)
    # Unguessable marks, so that no text of a user is mistaken for a placeholder.
    marks = [f'"{secrets.token_hex(16)}"' for _ in named]
    marked = replace(
        job,
        input=marks[0] if named[0] else job.input,
        output=marks[1] if named[1] else job.output,
    )
    told = wire.whole(marked, attempts, with_traces=with_traces)
    body = orjson.dumps({**told, **more})
    pieces: list[Piece] = []
    for mark, found in zip(marks, named, strict=True):
        before, is_there, after = body.partition(mark.encode())
        if found is not None and is_there:
            pieces += [before, await _or_null(payloads, found)]
            body = after
    return _send(payloads, [*pieces, body], headers)


async def answer_text(
    payloads: Payloads, stored: str | None, headers: Mapping[str, str]
) -> Response:
    """Send a single input or output; `BlobMissing` if it was deleted."""
    named = reference(stored)
    if named is None:
        return Response(stored, 200, headers, wire.MEDIA_TYPE)
    await payloads.check(named)
    return _send(payloads, [named], headers)


def _send(
    payloads: Payloads, pieces: Sequence[Piece], headers: Mapping[str, str]
) -> Response:
    size = sum(p.size if isinstance(p, Reference) else len(p) for p in pieces)
    told = {**headers, "Content-Length": str(size)}
    return StreamingResponse(_flow(payloads, pieces), 200, told, wire.MEDIA_TYPE)


async def _flow(
    payloads: Payloads, pieces: Sequence[Piece]
) -> AsyncGenerator[bytes, None]:
    for piece in pieces:
        if isinstance(piece, bytes):
            yield piece
        else:
            async for part in payloads.stream(piece):
                yield part


async def _or_null(payloads: Payloads, named: Reference) -> Piece:
    """Check first: a job whose blob was deleted must still be shown."""
    try:
        await payloads.check(named)
    except BlobMissing:
        return b"null"
    return named
