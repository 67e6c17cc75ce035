"""The bucket with results, uploaded files, and requests too large for an item."""

from dataclasses import dataclass
from typing import Any, Final

from backburner_apps.features.aws.aws_errors import code_of, raising
from backburner_apps.features.core.records import JobRecord

URL_SECONDS: Final = 3600
RESULTS: Final = "jobs/"
REQUESTS: Final = "requests/"
UPLOADS: Final = "uploads/"
JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Bucket:
    """Reads and writes whole objects of one bucket."""

    client: Any
    name: str

    @raising
    def size(self, key: str) -> int | None:
        """Return the size of an object in bytes, or `None` if it does not exist."""
        # A HEAD of a missing object is a 403 unless the caller may list the bucket.
        page = self.client.list_objects_v2(Bucket=self.name, Prefix=key, MaxKeys=1)
        sizes = [o["Size"] for o in page.get("Contents", ()) if o["Key"] == key]
        return sizes[0] if sizes else None

    @raising
    def read(self, key: str) -> bytes:
        """Return the content of an object."""
        content: bytes = self.client.get_object(Bucket=self.name, Key=key)[
            "Body"
        ].read()
        return content

    @raising
    def write_once(self, key: str, content: bytes) -> None:
        """Store an object unless one with that name exists."""
        try:
            self.client.put_object(
                Bucket=self.name,
                Key=key,
                Body=content,
                ContentType=JSON,
                IfNoneMatch="*",
            )
        except self.client.exceptions.ClientError as error:
            if code_of(error) != "PreconditionFailed":
                raise

    def url_to_read(self, key: str) -> str:
        """Return a URL to fetch an object, valid for an hour."""
        return self._signed("get_object", Key=key, ResponseContentType=JSON)

    def url_to_write(self, key: str, size: int) -> str:
        """Return a URL to upload a file of exactly `size` bytes, valid for an hour."""
        return self._signed("put_object", Key=key, ContentLength=size)

    def _signed(self, call: str, **wanted: Any) -> str:
        url: str = self.client.generate_presigned_url(
            call, Params={"Bucket": self.name, **wanted}, ExpiresIn=URL_SECONDS
        )
        return url


def result_key(record: JobRecord) -> str:
    """Return the name of a job's result."""
    return f"{RESULTS}{record.feature}/{record.job_id}/result.json"


def request_key(record: JobRecord) -> str:
    """Return the name of a job's request, if it is kept in the bucket."""
    return f"{REQUESTS}{record.feature}/{record.job_id}/request.json"


class S3Results:
    """Stores results as objects of the bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def find(self, record: JobRecord) -> str | None:
        key = result_key(record)
        return None if self._bucket.size(key) is None else key

    async def write(self, record: JobRecord, content: bytes) -> str:
        key = result_key(record)
        self._bucket.write_once(key, content)
        return key

    async def sign(self, record: JobRecord) -> str:
        return self._bucket.url_to_read(record.result_key or result_key(record))
