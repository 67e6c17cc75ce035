"""`GET /api/v2/search`: searches the caller's own files."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response
from starlette.routing import BaseRoute

from backburner import Backburner
from backburner.web import Caller, Route, answer, require, routes_of
from backburner_apps.documents.search import (
    LIMIT,
    MAX_LIMIT,
    MAX_QUERY,
    Result,
    search,
)

Reader = Annotated[Caller, require("jobs:read")]
Words = Annotated[str, Query(min_length=1, max_length=MAX_QUERY)]
Id = Annotated[str | None, Query(max_length=100, pattern=r"^[\w.-]+$")]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]


def routes(backburner: Backburner) -> Sequence[BaseRoute]:
    """Return the route over an open `Backburner`."""

    async def find(
        caller: Reader,
        q: Words,
        batch_id: Annotated[Id, Query(alias="batchId")] = None,
        file_id: Annotated[Id, Query(alias="fileId")] = None,
        limit: Limit = LIMIT,
    ) -> Response:
        """
        Search the caller's own files, by meaning and by words.

        `mode` is `keyword` if the search was by words only.
        """
        found = await search(
            backburner, caller.owner, q, batch_id=batch_id, file_id=file_id, limit=limit
        )
        results = [_wire(result) for result in found.results]
        return answer({"results": results, "mode": found.mode})

    route = Route("GET", "/api/v2/search", find, "Search the caller's files")
    return routes_of("documents", [route])


def _wire(result: Result) -> dict[str, Any]:
    page = {} if result.page is None else {"page": result.page}
    return {
        "fileId": result.file_id,
        "fileName": result.file_name,
        "batchId": result.batch_id,
        **page,
        "score": result.score,
        "snippet": result.snippet,
    }
