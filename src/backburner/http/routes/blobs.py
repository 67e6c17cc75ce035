"""Downloads of large inputs and outputs by signed URLs."""

from datetime import timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.blobs.blob import BlobKey, Reference, reference
from backburner.domain.errors import (
    BlobMissing,
    InvalidInput,
    JobNotFound,
    StoreUnavailable,
)
from backburner.domain.jobs.job import JobState
from backburner.http import audit, contents, wire
from backburner.http.auth import Anybody, Reader
from backburner.http.problems import LinkRefused, NoResult, documented
from backburner.http.schemas.jobs import LinkQuery, LinkView, Signed
from backburner.http.state import server_state_of

router = APIRouter(tags=["blobs"])


GUARDS: Final = {
    "Cache-Control": "private, no-store",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Referrer-Policy": "no-referrer",
}
"""The headers of contents: not displayed by browsers, not stored by caches."""


@router.get(
    "/v1/jobs/{job_id}/link",
    operation_id="get_link",
    summary="Get a link to a job's large input or output",
    response_model=LinkView,
    response_description="The link. Anyone who has it can use it until it expires.",
    responses=documented(JobNotFound, BlobMissing, NoResult),
)
async def link(
    request: Request, caller: Reader, job_id: str, query: Annotated[LinkQuery, Query()]
) -> Response:
    """
    Return a link that opens one content without a key, for 15 minutes by default.

    Only contents over 64 KiB have one; smaller ones are part of the job.
    """
    server_state = server_state_of(request)
    job = await server_state.engine.find(job_id, caller.visible)
    if query.part == "output" and job.state is not JobState.SUCCEEDED:
        raise NoResult(job)
    named = reference(job.input if query.part == "input" else job.output)
    if named is None:
        raise BlobMissing(f"the {query.part} is small: it is in the job itself")
    await audit.record_for_other(request, caller, job.owner, "content.linked", job.id)
    url, expires_at = server_state.signed_urls.sign(
        f"/v1/blobs/{named.key.id}", span=timedelta(seconds=query.seconds)
    )
    told = {"url": url, "size": named.size, "expires_at": wire.time(expires_at)}
    return wire.answer(told, headers={"Cache-Control": "no-store"})


@router.get(
    "/v1/blobs/{blob_id}",
    operation_id="get_blob",
    summary="Get a content by its link",
    response_model=None,
    responses={
        200: {
            "description": "The content, to be saved.",
            "content": {wire.MEDIA_TYPE: {"schema": {}}},
            "headers": {
                "Content-Disposition": {
                    "description": "`attachment`, with a name.",
                    "schema": {"type": "string"},
                }
            },
        },
        **documented(
            LinkRefused, BlobMissing, InvalidInput, StoreUnavailable, public=True
        ),
    },
)
async def content(
    request: Request, _caller: Anybody, blob_id: str, query: Annotated[Signed, Query()]
) -> Response:
    """Send the content of a link from `GET /v1/jobs/{job_id}/link`, without a key."""
    server_state = server_state_of(request)
    path = f"/v1/blobs/{blob_id}"
    if not server_state.signed_urls.holds(
        "GET", path, exp=query.exp, kid=query.kid, sig=query.sig
    ):
        raise LinkRefused("the link is not valid or has expired")
    key = BlobKey.read(blob_id)
    size = await server_state.engine.payloads.size(key)
    name = f'attachment; filename="{key.id}.json"'
    headers = {**GUARDS, "Content-Disposition": name}
    return await contents.answer_text(
        server_state.engine.payloads, str(Reference(key, size)), headers
    )
