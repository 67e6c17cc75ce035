"""One's own prices come first; what nobody knows has no price; nothing is fetched."""

import subprocess
import sys
from decimal import Decimal

import pytest

from backburner.domain.costs.usage import Price, Usage
from backburner.domain.errors import ConfigurationError
from backburner.engine.submit.estimates import at_most, clamped
from backburner.ports.prices import NoPrices
from backburner.prices import ListPrices, ModelPrice, Overrides, read_overrides

OWN = """{"version": "house-7", "models": {
  "house-model": {"input": 2, "output": "8.5", "cached": 0.5, "ceiling": 1000},
  "gpt-4o": {"input": 1, "output": 1}
}}"""


@pytest.fixture
def own():
    return ListPrices(read_overrides(OWN))


@pytest.fixture
async def loaded(own):
    await own.load()
    return own


def test_ones_own_price_counts_what_was_read_before_apart(own):
    call = Usage("house-model", 1_000, 100, cached_tokens=400)

    assert Price(600 * 2 + 200 + 850, "house-7") == own.price(call)


def test_what_costs_anything_is_never_booked_as_nothing(own):
    assert 1 == own.price(Usage("house-model", 1, 0, cached_tokens=1)).cost


async def test_the_installed_list_is_known_once_it_is_loaded(own):
    call = Usage("gpt-4o-mini", 1_000_000, 0, "openai")
    before = own.price(call)

    await own.load()
    told = own.price(call)

    assert Price() == before
    assert told.cost is not None
    assert told.cost > 0
    assert told.version.startswith("genai-prices/")


async def test_ones_own_price_wins_over_the_installed_one(loaded):
    assert Price(1_000_000, "house-7") == loaded.price(Usage("gpt-4o", 10**6, 0))


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("no-such-model", None),
        ("x" * 10_000, None),
        ("", None),
        ("\x00\ud800", None),
        ("gpt-4o-mini", "no-such-provider"),
    ],
)
async def test_an_unknown_model_has_no_price(loaded, model, provider):
    assert Price() == loaded.price(Usage(model, 1_000, 1_000, provider))


async def test_huge_counts_have_a_price_that_can_be_stored(loaded):
    dear = Overrides(
        version="v", models={"m": ModelPrice(input=Decimal(10**6), output=Decimal(1))}
    )

    told = ListPrices(dear).price(Usage("m", 10**12, 10**12))

    assert 2**53 == told.cost
    assert loaded.price(Usage("gpt-4o-mini", 10**12, 10**12)).cost < 2**63


async def test_the_ceiling_is_ones_own_or_the_models_window(loaded):
    assert 1_000 == loaded.ceiling("house-model")
    assert loaded.ceiling("gpt-4o") is None, "one's own entry names none"
    assert 128_000 == loaded.ceiling("gpt-4o-mini")
    assert loaded.ceiling("no-such-model") is None


@pytest.mark.parametrize(
    ("model", "said", "kept"),
    [
        ("house-model", 10**9, 1_000),
        ("house-model", 999, 999),
        ("house-model", None, None),
        ("no-such-model", 10**9, 10**9),
        (None, 10**9, 10**9),
    ],
)
def test_an_estimate_is_not_above_what_the_model_can_take(own, model, said, kept):
    assert kept == clamped(own, model, said)


def test_an_estimate_in_money_is_by_the_dearest_kind_of_token(own):
    assert Price(8_500, "house-7") == at_most(own, "house-model", 1_000)
    assert 9 == at_most(own, "house-model", 1).cost, "rounded up"
    assert Price() == at_most(own, "no-such-model", 1_000)
    assert Price() == at_most(own, "house-model", None)
    assert Price() == at_most(NoPrices(), "house-model", 1_000)


def test_a_table_may_be_a_file_and_is_named_by_its_content(tmp_path):
    path = tmp_path / "prices.json"
    path.write_text('{"models": {"m": {"input": 1, "output": 2}}}')

    table = read_overrides(str(path))

    assert table.version.startswith("own-")
    assert table.version == read_overrides(path.read_text()).version
    assert read_overrides("  ") is None


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "/nowhere/prices.json",
        '{"models": {"m": {"input": -1, "output": 1}}}',
        '{"models": {"m": {"input": "NaN", "output": 1}}}',
        '{"models": {"m": {"input": 1e400, "output": 1}}}',
        '{"models": {"m": {"input": 1}}}',
        '{"models": {"m": {"input": 1, "output": 1, "ceiling": 0}}}',
        '{"model": {}}',
        '{"models": {"' + "x" * 10_000 + '": {"input": 1, "output": 1}}}',
    ],
)
def test_a_table_that_makes_no_sense_is_refused(text):
    with pytest.raises(ConfigurationError, match="BACKBURNER_PRICES"):
        read_overrides(text)


@pytest.mark.parametrize("module", ["backburner", "backburner.backburner"])
def test_the_list_is_not_loaded_by_whoever_does_not_ask(module):
    code = f"import sys, {module}; sys.exit('genai_prices' in sys.modules)"

    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode  # noqa: S603 - our own
