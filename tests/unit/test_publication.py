"""What an application's event may say."""

import pytest

from backburner.domain.errors import InvalidInput
from backburner.domain.events.publication import MAX_DATA, publication
from backburner.domain.jobs.job import Owner

ANN = Owner("acme", "ann")


def a_publication(topic="files", type_="file:changed", data=None):
    return publication(topic, type_, data or {}, to=ANN, at=1)


@pytest.mark.parametrize("topic", ["a", "batch:7f/3", "~" * 200])
def test_a_topic_is_any_visible_text(topic):
    assert topic == a_publication(topic).topic


@pytest.mark.parametrize("type_", ["a", "file:status-changed", "Chat.Answer_2"])
def test_a_type_is_a_name(type_):
    assert type_ == a_publication(type_=type_).type


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"topic": ""}, "topic"),
        ({"topic": "x" * 201}, "topic"),
        ({"topic": "two words"}, "topic"),
        ({"topic": "a\nid: 9"}, "topic"),
        ({"topic": "grüße"}, "topic"),
        ({"type_": ""}, "type"),
        ({"type_": "x" * 101}, "type"),
        ({"type_": "a\ndata: {}"}, "type"),
        ({"type_": "9a"}, "type"),
        ({"type_": "reset"}, "type"),
        ({"type_": "job.succeeded"}, "type"),
        ({"type_": "queue.throttled"}, "type"),
        ({"data": ["a"]}, "data"),
        ({"data": {"at": object()}}, "data"),
        ({"data": {"text": "x" * MAX_DATA}}, "data"),
        ({"data": {"text": "\ud800"}}, "data"),
    ],
)
def test_what_cannot_be_published_is_refused_by_its_field(given, field):
    with pytest.raises(InvalidInput) as refused:
        a_publication(**given)

    assert [field] == [told.path for told in refused.value.fields]


def test_data_may_have_its_full_size():
    room = MAX_DATA - len('{"text":""}')

    assert MAX_DATA == len(a_publication(data={"text": "x" * room}).data)
