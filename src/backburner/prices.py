"""
Prices of models: from the operator's table, otherwise from `genai-prices`.

The latter takes a tenth of a second and 30 MB to load, so it is loaded in a thread and
only when needed. It uses no network.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backburner.domain.costs.usage import LONGEST_NAME, Price, Usage
from backburner.domain.errors import ConfigurationError

MOST: Final = 2**53
MILLION: Final = 1_000_000
MOST_MODELS: Final = 1_000
LOCAL: Final = frozenset({"minilm", "minilm-light"})
"""Providers that run on this machine: their calls are free."""

Dollars = Annotated[Decimal, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]


class ModelPrice(BaseModel):
    """The price of one model, in dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: Dollars
    output: Dollars
    cached: Dollars | None = None
    """The price of cached input tokens; by default that of input tokens."""
    ceiling: int | None = Field(None, ge=1, le=10**9)
    """The maximum number of tokens of a job with one call."""


class Overrides(BaseModel):
    """The operator's price table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Name
    models: Mapping[Name, ModelPrice] = Field(default_factory=dict)


def read_overrides(setting: str) -> Overrides | None:
    """Read the table in `BACKBURNER_PRICES`, as JSON or a file; `None` without one."""
    if not setting.strip():
        return None
    try:
        is_text = setting.lstrip().startswith("{")
        text = setting if is_text else Path(setting).read_text("utf-8")
        table = {"version": _digest(text)} | _object(text)
        return Overrides.model_validate(table)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"BACKBURNER_PRICES: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigurationError(
            f"BACKBURNER_PRICES: {where}: {first['msg']}"
        ) from None


def _object(text: str) -> dict[str, Any]:
    return _Object.model_validate_json(text).model_dump()


class _Object(BaseModel):
    """Any JSON object."""

    model_config = ConfigDict(extra="allow")


def _digest(text: str) -> str:
    return f"own-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class ListPrices:
    """`Prices` from the operator's table and the installed list."""

    def __init__(self, overrides: Overrides | None = None) -> None:
        self._own = overrides or Overrides(version="none")
        self._list: Any = None
        self._dearest: dict[str, Price] = {}
        self._loading: asyncio.Task[Any] | None = None

    async def load(self) -> None:
        if self._list is not None:
            return
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(_load))
        # Shielded: a caller that is cancelled must not cancel it for the others.
        self._list = await asyncio.shield(self._loading)

    def price(self, call: Usage) -> Price:
        model_price = self._own.models.get(call.model)
        if model_price is not None:
            return Price(_cost(_amount(model_price, call)), self._own.version)
        if call.provider in LOCAL:
            return Price(0, "local")
        if self._list is None:
            return Price()
        return _listed(self._list, call)

    def dearest(self, model: str) -> Price:
        known = self._dearest.get(model)
        if known is None:
            kinds = Usage(model, MILLION, 0), Usage(model, 0, MILLION)
            known = max(map(self.price, kinds), key=lambda price: price.cost or 0)
            if self._list is not None and len(self._dearest) < MOST_MODELS:
                self._dearest[model] = known
        return known

    def ceiling(self, model: str) -> int | None:
        model_price = self._own.models.get(model)
        if model_price is not None:
            return model_price.ceiling
        return None if self._list is None else _window(self._list, model)


def _load() -> Any:
    import genai_prices  # noqa: PLC0415 - see above

    # Its table is built at the first request.
    _window(genai_prices, "none")
    return genai_prices


def _amount(price: ModelPrice, call: Usage) -> Decimal:
    """
    Return the cost in micro-dollars.

    Dollars per million tokens are micro-dollars per token.
    """
    cached = price.input if price.cached is None else price.cached
    fresh = call.input_tokens - call.cached_tokens
    read = fresh * price.input + call.cached_tokens * cached
    return read + call.output_tokens * price.output


def _cost(micro: Decimal) -> int:
    """Round up: a cost above zero is never recorded as zero."""
    return min(MOST, int(micro.to_integral_value(rounding=ROUND_CEILING)))


def _listed(module: Any, call: Usage) -> Price:
    used = module.Usage(
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        cache_read_tokens=call.cached_tokens,
    )
    at = datetime.fromtimestamp(call.at / 1000, tz=UTC) if call.at else None
    try:
        result = module.calc_price(
            used,
            call.model,
            provider_id=call.provider,
            genai_request_timestamp=at,
        )
    except (LookupError, ValueError, ArithmeticError):
        # The model or provider is unknown, or its price is not per token.
        return Price()
    version = f"genai-prices/{module.__version__}"
    return Price(_cost(result.total_price * MILLION), version)


@lru_cache(maxsize=256)
def _window(module: Any, model: str) -> int | None:
    snapshot = module.data_snapshot.get_snapshot()
    try:
        _, found = snapshot.find_provider_model(model, None, None, None)
    except LookupError:
        return None
    window: int | None = found.context_window
    return window
