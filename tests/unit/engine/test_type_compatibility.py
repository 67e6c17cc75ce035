"""What does not fit is refused before it is submitted; what might fit is not."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NotRequired
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    SerializeAsAny,
    TypeAdapter,
    ValidationError,
    create_model,
)
from typing_extensions import TypedDict

from backburner.engine.submit import type_compatibility
from backburner.engine.submit.type_compatibility import incompatibility


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    ONE = 1


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Named:
    name: str


class Sparse(TypedDict):
    x: int
    y: NotRequired[str]


class Renamed(BaseModel):
    size: int = Field(alias="SIZE")


class Either(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    size: int = Field(alias="SIZE")


class Chosen(BaseModel):
    size: int = Field(validation_alias=AliasChoices("large", "size"))


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    x: int


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str


class Odd(BaseModel):
    type: str
    config: int


class Numbers(RootModel[list[int]]):
    pass


class Tree(BaseModel):
    leaves: list["Tree"] = []


class Loose(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    name: str


Words = Annotated[list[str], BeforeValidator(lambda v: v.split() if v else v)]
Told = Annotated[int, PlainSerializer(str)]

whole = st.integers(-5, 5)
text = st.text("ab 1", max_size=3)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: whole,
    float: st.floats(-2, 2),
    bool: st.booleans(),
    str: text | whole.map(str) | st.just("2020-01-01"),
    None: st.none(),
    Any: whole | text,
    Decimal: st.decimals(-2, 2, places=1),
    datetime: st.datetimes(),
    date: st.dates(),
    timedelta: st.timedeltas(),
    UUID: st.uuids(),
    bytes: st.binary(max_size=2).filter(lambda b: b.isascii()),
    Colour: st.just(Colour.RED),
    Size: st.just(Size.ONE),
    Literal["a", 1]: st.sampled_from(["a", 1]),
    int | None: whole | st.none(),
    str | int: text | whole,
    Point: st.builds(Point, whole, whole),
    Named: st.builds(Named, text),
    Sparse: st.fixed_dictionaries({"x": whole}, optional={"y": text}),
    Renamed: whole.map(lambda n: Renamed(SIZE=n)),
    Either: whole.map(lambda n: Either(SIZE=n)),
    Chosen: whole.map(lambda n: Chosen(large=n)),
    Closed: whole.map(lambda n: Closed(x=n)),
    Open: st.builds(lambda a, b: Open(name=a, x=b), text, whole),
    Odd: st.builds(lambda a, b: Odd(type=a, config=b), text, whole),
    Numbers: st.lists(whole, min_size=1, max_size=2).map(Numbers),
    Tree: st.builds(Tree),
    Loose: text.map(lambda a: Loose(name=a)),
    Words: st.just(["a"]),
    Told: whole,
    SerializeAsAny[Open]: text.map(lambda a: Open(name=a, more=1)),
    dict[str, int]: st.dictionaries(text, whole, max_size=2),
    dict: st.dictionaries(st.sampled_from(["x", "name", "SIZE"]), whole | text),
}
FIELDS = ("x", "y", "name", "size", "SIZE")


def several(kind: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A type and its instances, as something that holds more than one of them."""
    some = st.lists(values, min_size=1, max_size=2)
    return st.sampled_from([(list[kind], some), (tuple[kind, ...], some.map(tuple))])


@st.composite
def models(draw: Callable[..., Any], inner: st.SearchStrategy[Any]) -> Any:
    """A model of its own, and its instances."""
    names = draw(st.lists(st.sampled_from(FIELDS), unique=True, max_size=3))
    kinds = {name: draw(inner) for name in names}
    extra = draw(st.sampled_from(["ignore", "forbid", "allow"]))
    made = create_model(
        "Text",  # the same name for all: two outputs may have like-named models
        __config__=ConfigDict(extra=extra),
        **{name: (kind, ...) for name, (kind, _) in kinds.items()},
    )
    values = {name: value for name, (_, value) in kinds.items()}
    return made, st.fixed_dictionaries(values).map(lambda v: made.model_construct(**v))


KINDS = st.recursive(
    st.sampled_from(list(PLAIN.items())),
    lambda inner: models(inner) | inner.flatmap(lambda kind: several(*kind)),
    max_leaves=4,
)


def is_taken(adapter: TypeAdapter[Any], sent: bytes) -> bool:
    try:
        adapter.validate_json(sent)
    except ValidationError:
        return False
    return True


@settings(max_examples=400, deadline=None)
@given(st.data(), KINDS, KINDS)
def test_an_output_that_would_be_taken_is_not_refused(data, gives, takes):
    output, wanted = TypeAdapter(gives[0]), TypeAdapter(takes[0])
    sent = output.dump_json(data.draw(gives[1]), by_alias=True, warnings=False)
    told = incompatibility({"step": output}, wanted)

    assert told is None or not is_taken(wanted, sent), f"{sent!r} is taken, but {told}"


@settings(max_examples=200, deadline=None)
@given(st.data(), KINDS, KINDS, KINDS)
def test_outputs_that_would_be_taken_together_are_not_refused(data, one, two, takes):
    outputs = {"x": TypeAdapter(one[0]), "name": TypeAdapter(two[0])}
    wanted = TypeAdapter(takes[0])
    parts = [
        b'"%s":%s'
        % (name.encode(), adapter.dump_json(data.draw(kind[1]), warnings=False))
        for (name, adapter), kind in zip(outputs.items(), (one, two), strict=True)
    ]
    sent = b"{" + b",".join(parts) + b"}"
    told = incompatibility(outputs, wanted)

    assert told is None or not is_taken(wanted, sent), f"{sent!r} is taken, but {told}"


def test_a_wrong_refusal_would_be_seen(monkeypatch):
    monkeypatch.setattr(type_compatibility, "_TAKES", {})
    told = incompatibility({"step": TypeAdapter(str)}, TypeAdapter(int))

    assert told is not None
    assert is_taken(TypeAdapter(int), b'"1"')


class Wide(BaseModel):
    x: int
    y: str


class Deep(BaseModel):
    inner: list[Wide]


class Other(BaseModel):
    inner: list[Named]


@pytest.mark.parametrize(
    ("gives", "takes", "told"),
    [
        (Wide, int, "it is of type object, not integer"),
        (int, Wide, "it is of type integer, not object"),
        (int, str, "it is of type integer, not string"),
        (list[int], dict, "it is of type array, not object"),
        (None, str, "it is of type null, not string"),
        (Closed, Wide, "it has no field 'y'"),
        (Wide, Closed, "it has an unexpected field 'y'"),
        (Deep, Other, "it.inner[] has no field 'name'"),
        (list[Wide], list[str], "it[] is of type object, not string"),
    ],
)
def test_what_cannot_fit_is_told(gives, takes, told):
    assert told == incompatibility({"step": TypeAdapter(gives)}, TypeAdapter(takes))


@pytest.mark.parametrize(
    ("gives", "takes", "told"),
    [
        (
            {"x": int, "y": str},
            str,
            "it is an object of 2 outputs, not string",
        ),
        ({"x": int, "z": str}, Wide, "it has no field 'y'"),
        ({"x": int, "y": str}, Closed, "it has an unexpected field 'y'"),
        ({"x": Wide, "y": str}, Wide, "it.x is of type object, not integer"),
    ],
)
def test_outputs_that_cannot_fit_together_are_told(gives, takes, told):
    outputs = {name: TypeAdapter(kind) for name, kind in gives.items()}

    assert told == incompatibility(outputs, TypeAdapter(takes))
