"""The common part of all features' requests."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    StringConstraints,
    ValidationError,
    model_validator,
)

Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
MOST_SHOWN = 5


class FeatureRequest(BaseModel):
    """A CV, as text or as an uploaded file, and the job posting that it is for."""

    model_config = ConfigDict(extra="forbid")

    user_cv: Text | None = None
    user_cv_key: Annotated[str, StringConstraints(max_length=200)] | None = None
    """The `user_cv_key` of an answer of `POST /api/{feature}/uploads`."""
    job_posting: Text

    @model_validator(mode="after")
    def _has_one_cv(self) -> Self:
        if (self.user_cv is None) == (self.user_cv_key is None):
            raise ValueError("give either user_cv or user_cv_key")
        return self


def texts_of(data: Any, name: str = "the body") -> Iterator[tuple[str, str]]:
    """Yield every text in JSON data with the name of its field."""
    if isinstance(data, str):
        yield name, data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from texts_of(value, str(key)[:100])
    elif isinstance(data, list):
        for value in data:
            yield from texts_of(value, name)


def mistakes(error: ValidationError) -> str:
    """Return a message about a request's errors, without its values."""
    texts = [_mistake(one) for one in error.errors(include_input=False)[:MOST_SHOWN]]
    return "; ".join(texts)


def _mistake(one: Any) -> str:
    path = ".".join(str(part)[:100] for part in one["loc"])
    return f"{path}: {one['msg']}" if path else str(one["msg"])
