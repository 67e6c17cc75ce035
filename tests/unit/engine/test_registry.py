from datetime import timedelta

import pytest

from backburner.domain.errors import ConfigurationError, UnknownCapability
from backburner.domain.jobs.outcome import Cancel, Failed, Snooze
from backburner.domain.jobs.retry import RetryPolicy
from backburner.engine.registry import Registry, capability
from backburner.engine.run.context import Context


@capability("text.shout", queue="loud", max_attempts=7)
async def shout(_ctx: Context, text: str) -> str | Failed:
    """Say it louder."""
    return text.upper()


@capability("text.whisper")
async def whisper(_ctx: Context, text: str) -> str:
    return text.lower()


@capability("never")
async def never(_ctx: Context, _text: str) -> Snooze | Cancel:
    return Cancel("never")


def test_a_capability_is_read_from_its_handler():
    assert "Say it louder." == shout.description
    assert {"type": "string"} == shout.input.json_schema()
    assert {"type": "string"} == shout.output.json_schema()
    assert 7 == shout.retry.max_attempts


def test_a_handler_that_only_answers_has_no_result():
    assert {"type": "null"} == never.output.json_schema()


def test_a_policy_takes_the_place_of_a_count():
    policy = RetryPolicy(max_attempts=2)
    made = capability("x", max_attempts=7, retry=policy)(whisper.handler)

    assert policy is made.retry


def test_a_name_is_taken_once():
    with pytest.raises(ConfigurationError, match=r"two capabilities .*text\.shout"):
        Registry([shout, capability("text.shout")(whisper.handler)])


def test_two_of_one_name_are_told_by_where_they_are_defined():
    other = capability("text.shout")(whisper.handler)

    with pytest.raises(ConfigurationError) as raised:
        Registry([shout, other])
    assert f"{__name__}.shout and {__name__}.whisper" in str(raised.value)

    registry = Registry([shout])
    with pytest.raises(ConfigurationError, match=f"rename {__name__}.shout"):
        registry.own(other)


@pytest.mark.parametrize(
    ("field", "value", "hint"),
    [
        ("timeout", 30, r"timedelta\(seconds=30\), not 30"),
        ("timeout", timedelta(), "positive"),
        ("timeout", None, "not None"),
        ("patience", 60.0, "not 60.0"),
        ("retry", 3, "RetryPolicy"),
        ("max_attempts", "3", "whole number from 1"),
        ("max_attempts", 0, "whole number from 1"),
        ("max_attempts", True, "whole number from 1"),
        ("queue", "", "1 to 100"),
        ("queue", None, "1 to 100"),
        ("tokens", "many", "a function of the input"),
        ("tokens", -1, "a function of the input"),
        ("model", 5, "a name"),
        ("name", "", "a name"),
    ],
)
def test_a_field_of_a_wrong_type_is_refused_where_it_is_written(field, value, hint):
    with pytest.raises(ConfigurationError, match=f"`{field}` must be .*{hint}"):
        capability(**{"name": "x", field: value})(whisper.handler)


def test_a_capability_without_a_name_is_told_how_to_write_one():
    with pytest.raises(ConfigurationError, match=r'write `@capability\("plain"\)`'):
        capability(plain)


def test_the_same_capability_may_come_twice():
    assert ["text.shout"] == [found.name for found in Registry([shout, shout])]


def test_an_unknown_name_is_answered_with_a_near_one():
    with pytest.raises(UnknownCapability, match=r"did you mean 'text\.shout'\?"):
        Registry([shout, whisper]).find("text.shuot")


def test_an_unknown_name_that_is_like_none_gets_no_hint():
    with pytest.raises(UnknownCapability) as raised:
        Registry([shout]).find("zzz")

    assert "no capability is named 'zzz'" == str(raised.value)


def test_queues_are_those_of_the_capabilities():
    assert ["default", "loud"] == Registry([shout, whisper]).queues()


def plain(_ctx: Context, text: str) -> str:
    return text


async def of_one_argument(_ctx: Context) -> str:
    return ""


async def without_input_type(_ctx: Context, text) -> str:
    return text


async def without_result_type(_ctx: Context, text: str):
    return text


@pytest.mark.parametrize(
    "handler", [plain, of_one_argument, without_input_type, without_result_type]
)
def test_a_handler_of_another_shape_is_refused_by_name(handler):
    with pytest.raises(ConfigurationError, match=r"capability 'text\.odd' must"):
        capability("text.odd")(handler)


def test_a_capability_of_backburner_is_run_and_offered_to_nobody():
    registry = Registry([whisper])
    registry.own(shout)

    assert shout is registry.get("text.shout")
    assert [whisper] == [*registry]
    assert (["default"], ["default", "loud"]) == (registry.queues(), registry.served())
    with pytest.raises(UnknownCapability):
        registry.find("text.shout")
    with pytest.raises(ConfigurationError):
        registry.own(whisper)
