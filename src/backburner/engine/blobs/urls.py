"""
Signed URLs: one method, one object, an expiry, for clients without an API key.

If the blob store can sign URLs with the same limits, clients use it directly; otherwise
they use our own route, `/v1/files/…`, which checks the limits.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, NamedTuple

from backburner.domain.blobs.app_blob import AppBlob
from backburner.domain.blobs.blob import BlobKey
from backburner.domain.jobs.job import Instant
from backburner.engine.access.signed_urls import LONGEST, SignedUrls
from backburner.engine.blobs import streams
from backburner.ports.blobs import BlobStore, DirectUrl, UrlTerms
from backburner.ports.clock import Clock

FILES: Final = "/v1/files/"
SIZE, LIMIT, TYPE = "size", "max", "type"


class SignedUrl(NamedTuple):
    """A URL that gives its holder access to one object until it expires."""

    method: Literal["GET", "PUT"]
    url: str
    """The URL; a path on this server if `BACKBURNER_PUBLIC_URL` is not set."""
    headers: dict[str, str]
    """Headers that the client must send."""
    expires_at: Instant
    upload: str = ""
    """For PUT: the id with which the upload is confirmed."""


@dataclass(frozen=True, slots=True)
class UrlSigner:
    """Signs URLs of contents."""

    blobs: BlobStore
    signed_urls: SignedUrls
    clock: Clock
    base: str = ""
    """The prefix of this server's own URLs."""

    async def to_get(self, blob: AppBlob, span: timedelta) -> SignedUrl:
        """Return a URL for reading a blob."""
        name = blob.name or blob.id
        terms = UrlTerms(_span(span), content_type=blob.content_type, filename=name)
        direct = await self._direct("GET", blob.key, terms)
        if direct is not None:
            return self._told("GET", direct, terms)
        url, expires_at = self.signed_urls.sign(FILES + blob.key.id, span=terms.span)
        return SignedUrl("GET", self.base + url, {}, expires_at)

    async def to_put(self, key: BlobKey, terms: UrlTerms) -> SignedUrl:
        """Return a URL for an upload of an exact or a largest size."""
        terms = terms._replace(span=_span(terms.span))
        direct = await self._direct("PUT", key, terms)
        if direct is not None:
            return self._told("PUT", direct, terms)._replace(upload=key.job)
        limits = {SIZE: terms.size, LIMIT: terms.limit, TYPE: terms.content_type}
        url, expires_at = self.signed_urls.sign(
            FILES + key.id,
            span=terms.span,
            method="PUT",
            terms={
                name: str(value) for name, value in limits.items() if value is not None
            },
        )
        headers = {} if terms.content_type is None else _header(terms.content_type)
        return SignedUrl("PUT", self.base + url, headers, expires_at, key.job)

    async def _direct(
        self, method: Literal["GET", "PUT"], key: BlobKey, terms: UrlTerms
    ) -> DirectUrl | None:
        return await streams.in_thread(self.blobs.sign, method, key, terms)

    def _told(
        self, method: Literal["GET", "PUT"], direct: DirectUrl, terms: UrlTerms
    ) -> SignedUrl:
        expires_at = self.clock.now() + terms.span // timedelta(milliseconds=1)
        return SignedUrl(method, direct.url, dict(direct.headers), expires_at)


def _header(content_type: str) -> dict[str, str]:
    return {"Content-Type": content_type}


def _span(span: timedelta) -> timedelta:
    """Return the lifetime in whole seconds, from one second to a day."""
    seconds = max(1, min(span, LONGEST) // timedelta(seconds=1))
    return timedelta(seconds=seconds)
