"""The models of OpenAPI say what the shapes say."""

from typing import Annotated, NotRequired, TypedDict

import pytest
from pydantic import ValidationError

from backburner.http.schemas.models import model_of, page_of
from backburner.shapes import Time


class Wheel(TypedDict):
    """A wheel."""

    size: int


class Vehicle(TypedDict):
    """A vehicle."""

    built_at: Time
    """When it was
    built."""
    kind: Annotated[str, int]
    wheels: NotRequired[list[Wheel]]
    schema: NotRequired[str]


class Car(Vehicle):
    """A car."""

    doors: int


def test_a_field_is_described_by_its_docstring_and_by_what_it_is_described_as():
    described = model_of(Car).model_json_schema()
    fields = described["properties"]

    assert ("Car", "A car.") == (described["title"], described["description"])
    assert ["built_at", "kind", "doors"] == described["required"]
    assert "When it was built." == fields["built_at"]["description"]
    assert "date-time" == fields["built_at"]["format"]
    assert "integer" == fields["kind"]["type"]
    assert {"$ref": "#/$defs/Wheel"} == fields["wheels"]["items"]


def test_what_may_be_left_out_has_a_default_and_the_rest_is_required():
    seen = model_of(Car).model_validate(
        {"built_at": "2030-01-31T12:00:00Z", "kind": 1, "doors": 4}
    )

    assert {"built_at", "kind", "doors"} == seen.model_fields_set
    assert [] == seen.model_dump(by_alias=True)["wheels"]
    assert None is seen.model_dump(by_alias=True)["schema"]
    with pytest.raises(ValidationError, match="doors"):
        model_of(Car).model_validate({"built_at": "2030-01-31T12:00:00Z", "kind": 1})


def test_a_page_has_items_and_a_cursor():
    described = page_of(Wheel, "WheelPage", "Wheels.").model_json_schema()

    assert ["items", "next_cursor"] == described["required"]
    assert {"$ref": "#/$defs/Wheel"} == described["properties"]["items"]["items"]
