"""Small things that applications import: camelCase values, zones, lazy functions."""

import sys

import pytest
from pydantic import TypeAdapter, ValidationError

from backburner import CamelModel, TimeZone, lazy


class Song(CamelModel):
    """A value with a name of two words."""

    due_date: str


class Body(CamelModel, populate_by_name=False, extra="forbid"):
    """One that is read by its JSON names only."""

    due_date: str


def test_a_value_is_written_in_camel_case_and_read_by_both_names():
    assert {"dueDate": "now"} == Song(due_date="now").model_dump(by_alias=True)
    assert Song(dueDate="now") == Song(due_date="now")
    with pytest.raises(ValidationError):
        Body(due_date="now")


@pytest.mark.parametrize("wrong", ["Mars/Olympus", "", "../etc/passwd", "a\0b"])
def test_a_time_zone_is_one_that_is_known(wrong):
    zone = TypeAdapter(TimeZone)

    assert "Europe/Berlin" == zone.validate_python("Europe/Berlin")
    with pytest.raises(ValidationError, match="is not a time zone"):
        zone.validate_python(wrong)


def test_a_lazy_function_is_imported_when_it_is_called(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    lightness = lazy("colorsys:rgb_to_hls")
    assert "colorsys" not in sys.modules

    assert 1.0 == lightness(1.0, 1.0, b=1.0)[1]
    assert "colorsys" in sys.modules
