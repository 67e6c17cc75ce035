"""
Amazon S3 and compatible servers: a `BlobStore` for `s3://` URLs.

`obstore` transfers the contents. `botocore` finds the credentials, signs URLs (it can
sign for an exact size, `obstore` cannot) and lists unfinished uploads.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, Literal, Self

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from obstore.store import S3Store

from backburner.blobs.objects import RETRY, Address, ObjectBlobs, client_options
from backburner.domain.blobs.blob import BlobKey, attachment
from backburner.domain.errors import ConfigurationError, StoreUnavailable
from backburner.domain.jobs.job import Instant
from backburner.ports.blobs import DirectUrl, UrlTerms
from backburner.ports.clock import Dice
from backburner.ports.faults import Faults

OPTIONS: Final = frozenset({"endpoint", "region"})
REGION: Final = "us-east-1"
ASK_ALWAYS: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Makes `obstore` ask for credentials every time: `botocore` caches and renews them."""


class S3Blobs(ObjectBlobs):
    """Blobs in a bucket: `s3://bucket/prefix?region=…&endpoint=…`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._session = botocore.session.get_session()
        if address.key is not None:
            self._session.set_credentials(address.key, address.secret or "")
        region = self._session.get_config_variable("region")
        self._region = address.options.get("region") or region or REGION
        self._endpoint = address.options.get("endpoint")
        store = S3Store(
            address.bucket,
            config={
                "region": self._region,
                **({"endpoint": self._endpoint} if self._endpoint else {}),
            },
            client_options=client_options(self._endpoint),  # type: ignore[arg-type]
            retry_config=RETRY,  # type: ignore[arg-type]
            credential_provider=_credentials(self._session),
        )
        super().__init__(store, address.prefix, f"the bucket {address.bucket}")

    @classmethod
    def from_url(cls, url: str, dice: Dice, faults: Faults) -> Self:
        """Create a store from `s3://[key:secret@]bucket/prefix?region=…&endpoint=…`."""
        del dice, faults
        return cls(Address.read(url, OPTIONS))

    def sign(
        self, method: Literal["GET", "PUT"], key: BlobKey, terms: UrlTerms
    ) -> DirectUrl | None:
        """Sign with s3v4; a PUT needs an exact size, as S3 has no other limit."""
        params: dict[str, Any] = {
            "Bucket": self._address.bucket,
            "Key": self._path(key),
        }
        headers: dict[str, str] = {}
        if method == "PUT":
            if terms.size is None:
                return None
            params["ContentLength"] = terms.size
            if terms.content_type is not None:
                params["ContentType"] = terms.content_type
                headers["Content-Type"] = terms.content_type
        else:
            params["ResponseContentDisposition"] = attachment(
                terms.filename or key.name
            )
            params["ResponseCacheControl"] = "private, no-store"
            if terms.content_type is not None:
                params["ResponseContentType"] = terms.content_type
        with self._translated_aws():
            url: str = self._client.generate_presigned_url(
                "put_object" if method == "PUT" else "get_object",
                Params=params,
                ExpiresIn=terms.span // timedelta(seconds=1),
                HttpMethod=method,
            )
        return DirectUrl(url, headers)

    def discard_unfinished(self, *, before: Instant) -> int:
        bucket, count = self._address.bucket, 0
        with self._translated_aws():
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=bucket, Prefix=self._prefix
            )
            for page in pages:
                for upload in page.get("Uploads", ()):
                    if self._began_at(upload) < before:
                        self._client.abort_multipart_upload(
                            Bucket=bucket,
                            Key=upload["Key"],
                            UploadId=upload["UploadId"],
                        )
                        count += 1
        return count

    def _began_at(self, upload: Any) -> Instant:
        """Return when an upload began; some compatible servers report a wrong time."""
        group = upload["Key"].removeprefix(self._prefix).partition("/")[0]
        return max(int(upload["Initiated"].timestamp() * 1000), _created_at(group))

    @cached_property
    def _client(self) -> Any:
        """Amazon's client, created on first use, as that takes a tenth of a second."""
        return self._session.create_client(
            "s3",
            region_name=self._region,
            endpoint_url=self._endpoint,
            config=Config(
                signature_version="s3v4",
                request_checksum_calculation="when_required",
                s3={"addressing_style": "path" if self._endpoint else "auto"},
                connect_timeout=5,
                read_timeout=60,
                retries={"total_max_attempts": 3},
            ),
        )

    @contextmanager
    def _translated_aws(self) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            kind = type(error).__name__
            raise StoreUnavailable(f"{self._place} failed: {kind}") from error


def _credentials(session: botocore.session.Session) -> Callable[[], Any]:
    """Return a function that passes `botocore`'s credentials to `obstore`."""
    credentials = session.get_credentials()
    if credentials is None:
        raise ConfigurationError(
            "BACKBURNER_BLOBS: no AWS credentials were found: set AWS_ACCESS_KEY_ID "
            "and AWS_SECRET_ACCESS_KEY, or assign a role to this process"
        )

    def provide() -> dict[str, Any]:
        frozen = credentials.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": ASK_ALWAYS,
        }

    return provide


def _created_at(group: str) -> Instant:
    """Return when an id was created, from its UUIDv7; 0 if it has none."""
    try:
        return uuid.UUID(group.partition("_")[2]).int >> 80
    except ValueError:
        return 0
