"""
Google Cloud Storage and Azure Blob Storage: a `BlobStore` for `gs://` and `az://` URLs.

`obstore` finds credentials as each cloud's own tools do. A URL for PUT cannot be
limited to a size there, so the size is checked when the upload is confirmed.
"""

from typing import Any, Final, Literal, Self

import obstore
from obstore.store import AzureStore, GCSStore

from backburner.blobs.objects import RETRY, Address, ObjectBlobs, client_options
from backburner.domain.blobs.blob import BlobKey
from backburner.ports.blobs import DirectUrl, UrlTerms
from backburner.ports.clock import Dice
from backburner.ports.faults import Faults

AZURE_PUT: Final = {"x-ms-blob-type": "BlockBlob"}


class _SigningBlobs(ObjectBlobs):
    """Blobs in a cloud whose URLs `obstore` signs."""

    _put_headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    _store: Any

    def sign(
        self, method: Literal["GET", "PUT"], key: BlobKey, terms: UrlTerms
    ) -> DirectUrl | None:
        headers = dict(self._put_headers) if method == "PUT" else {}
        if method == "PUT" and terms.content_type is not None:
            headers["Content-Type"] = terms.content_type
        with self._translated():
            url = obstore.sign(self._store, method, self._path(key), terms.span)
        return DirectUrl(url, headers)


class GoogleBlobs(_SigningBlobs):
    """Blobs in a bucket: `gs://bucket/prefix`."""

    @classmethod
    def from_url(cls, url: str, dice: Dice, faults: Faults) -> Self:
        """Create a store from `gs://bucket/prefix`."""
        del dice, faults
        address = Address.read(url, frozenset())
        options: Any = client_options(None)
        retry: Any = RETRY
        store = GCSStore(address.bucket, client_options=options, retry_config=retry)
        return cls(store, address.prefix, f"the bucket {address.bucket}")


class AzureBlobs(_SigningBlobs):
    """Blobs in a container: `az://container/prefix?account=…`."""

    _put_headers = AZURE_PUT

    @classmethod
    def from_url(cls, url: str, dice: Dice, faults: Faults) -> Self:
        """
        Create a store from `az://container/prefix?account=…`.

        Without `account`, AZURE_STORAGE_ACCOUNT_NAME applies.
        """
        del dice, faults
        address = Address.read(url, frozenset({"account"}))
        config: Any = {}
        if "account" in address.options:
            config["account_name"] = address.options["account"]
        options: Any = client_options(None)
        retry: Any = RETRY
        store = AzureStore(
            address.bucket, config=config, client_options=options, retry_config=retry
        )
        return cls(store, address.prefix, f"the container {address.bucket}")
