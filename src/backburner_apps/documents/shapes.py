"""Bodies of requests and inputs of jobs."""

import binascii
import re
from base64 import b64decode
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, Field, StrictInt, field_validator

from backburner import CamelModel

MD5_HELP: Final = "must be 32 hexadecimal digits or base64, as `md5sum FILE` prints it"
_HEX: Final = re.compile(r"[0-9a-fA-F]{32}")
DIGEST: Final = 16
LONGEST_NAME: Final = 255


class NewBatch(CamelModel):
    """A batch to open."""

    file_count: StrictInt = Field(ge=1)


class NewFile(CamelModel):
    """A file for which a URL is requested."""

    file_name: str = Field(min_length=1, max_length=LONGEST_NAME)
    file_size: StrictInt = Field(ge=0)

    @field_validator("file_name")
    @classmethod
    def _printable(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("must consist of printable characters")
        return value


def md5_digits(value: object) -> object:
    """Return an MD5, given in hexadecimal digits or base64, as hexadecimal digits."""
    if value is None or not isinstance(value, str):
        return value
    text = value.strip()
    if _HEX.fullmatch(text):
        return text.lower()
    try:
        digest = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        digest = b""
    if len(digest) != DIGEST:
        raise ValueError(MD5_HELP)
    return digest.hex()


class Confirmation(CamelModel):
    """The size and MD5 of an uploaded file according to its client."""

    size: StrictInt = Field(ge=0)
    md5: Annotated[str | None, BeforeValidator(md5_digits)] = None


class FileRef(BaseModel):
    """A file to process."""

    file_id: str
    batch_id: str


class BatchRef(BaseModel):
    """A batch to report on or to complete."""

    batch_id: str
    generation: int


class Leftovers(BaseModel):
    """The chunks and contents of a deleted file or batch, which are to be deleted."""

    files: list[str] = []
    blobs: list[str] = []
