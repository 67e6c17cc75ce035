"""What a job used of a model, call by call."""

from typing import NamedTuple


class Usage(NamedTuple):
    """One call, as its provider counted it."""

    model: str
    input_tokens: int
    output_tokens: int
    provider: str | None = None
    cached_tokens: int = 0
    """Those of the input that the provider had read before."""

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.input_tokens + self.output_tokens
