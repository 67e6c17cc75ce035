"""The methods of both clients for features: submit, poll, fetch."""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import httpx2

from backburner.client import feature_dialogue as say
from backburner.client.dialogue import Dialogue, RequestPolicy, new_key, unreachable
from backburner.client.errors import ClientError, PollAborted
from backburner.client.feature_dialogue import (
    EVERY_SECONDS,
    TIMES,
    FeatureJob,
    Progress,
    Upload,
)

T = TypeVar("T")


class Features(Protocol):
    """The methods of the blocking client."""

    _ask: RequestPolicy

    def _run(self, dialogue: Dialogue[T]) -> T:
        """Execute a dialogue and return its result."""
        ...

    def submit_feature(
        self, feature: str, request: Mapping[str, Any], *, key: str | None = None
    ) -> FeatureJob:
        """Submit a request to a feature; retries do not create a second job."""
        return self._run(say.submit(self._ask, feature, request, key or new_key()))

    def upload_cv(self, feature: str, content: bytes) -> str:
        """Upload a CV file; return its `user_cv_key`."""
        offered = self._run(say.offer(self._ask, feature, len(content)))
        _request(offered["upload_url"], offered, content)
        return offered["user_cv_key"]

    def feature_status(self, feature: str, job_id: str) -> FeatureJob:
        """Return the current data of a job."""
        return self._run(say.status(self._ask, feature, job_id))

    def poll_feature(
        self,
        feature: str,
        job_id: str,
        *,
        on_progress: Progress | None = None,
        abort: threading.Event | None = None,
        every: float = EVERY_SECONDS,
        times: int = TIMES,
    ) -> FeatureJob:
        """
        Return a job when it has ended: completed, or failed with `code` and `error`.

        It polls every 5 seconds, 60 times; then it raises `PollTimeout`. Setting
        `abort` from another thread, or in `on_progress`, raises `PollAborted`.
        """

        def wait(seconds: float) -> None:
            if abort is not None and abort.wait(seconds):
                raise PollAborted

        dialogue = say.poll(feature, job_id, every, times)
        waits = None if abort is None else wait
        return self._run(say.watched(dialogue, on_progress, waits))

    def fetch_result(self, job: FeatureJob) -> Any:
        """Return the result of a completed job; its URL is valid for an hour."""
        return _request(job["result_url"]).json()


class AsyncFeatures(Protocol):
    """The methods of the asynchronous client."""

    _ask: RequestPolicy

    async def _run(self, dialogue: Dialogue[T]) -> T:
        """Execute a dialogue and return its result."""
        ...

    async def submit_feature(
        self, feature: str, request: Mapping[str, Any], *, key: str | None = None
    ) -> FeatureJob:
        """Submit a request to a feature; retries do not create a second job."""
        chosen = key or new_key()
        return await self._run(say.submit(self._ask, feature, request, chosen))

    async def upload_cv(self, feature: str, content: bytes) -> str:
        """Upload a CV file; return its `user_cv_key`."""
        offered = await self._run(say.offer(self._ask, feature, len(content)))
        await asyncio.to_thread(_request, offered["upload_url"], offered, content)
        return offered["user_cv_key"]

    async def feature_status(self, feature: str, job_id: str) -> FeatureJob:
        """Return the current data of a job."""
        return await self._run(say.status(self._ask, feature, job_id))

    async def poll_feature(
        self,
        feature: str,
        job_id: str,
        *,
        on_progress: Progress | None = None,
        every: float = EVERY_SECONDS,
        times: int = TIMES,
    ) -> FeatureJob:
        """
        Return a job when it has ended: completed, or failed with `code` and `error`.

        It polls every 5 seconds, 60 times; then it raises `PollTimeout`. To stop it,
        cancel the task that awaits it.
        """
        dialogue = say.poll(feature, job_id, every, times)
        return await self._run(say.watched(dialogue, on_progress))

    async def fetch_result(self, job: FeatureJob) -> Any:
        """Return the result of a completed job; its URL is valid for an hour."""
        return (await asyncio.to_thread(_request, job["result_url"])).json()


def _request(
    url: str, offered: Upload | None = None, content: bytes | None = None
) -> httpx2.Response:
    """Request a signed URL without the API key, which other servers must not see."""
    method = "GET" if offered is None else offered["method"]
    headers = {} if offered is None else offered["headers"]
    local = httpx2.URL(url).host in {"127.0.0.1", "localhost", "::1"}
    try:
        with httpx2.Client(trust_env=not local, timeout=60) as plain:
            answer = plain.request(method, url, headers=headers, content=content)
    except httpx2.HTTPError as error:
        raise unreachable(url.partition("?")[0], error) from None
    if not answer.is_success:
        raise ClientError(
            f"the signed URL was refused with status {answer.status_code}: "
            "it may have expired",
            code="LINK_REFUSED",
            status=answer.status_code,
        )
    return answer
