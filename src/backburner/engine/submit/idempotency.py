"""Idempotency keys: a repeated request is executed once."""

import hashlib
from typing import NamedTuple

from pydantic import BaseModel

from backburner.engine.submit.submission import GroupOptions, check_group


class IdempotencyKey(NamedTuple):
    """A client's `Idempotency-Key` and a digest of the request body."""

    key: str
    digest: str

    @classmethod
    def of(cls, key: str, body: BaseModel) -> "IdempotencyKey":
        """
        Return the key of a request with this body.

        `InvalidInput` if it is invalid.
        """
        check_group(GroupOptions(idempotency_key=key))
        return cls(key, hashlib.sha256(body.model_dump_json().encode()).hexdigest())
