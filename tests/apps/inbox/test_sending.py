"""Replies on their way to the Bot API: escaped, cut, repeated when it is worth it."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.domain.jobs.job import JobState
from backburner.engine.run.outbound import Http
from backburner.ports.app_settings import AppSettings
from backburner.ports.egress import Incoming, Silence, Unusable
from backburner.testing.doubles import LIMITS, FrozenClock
from backburner.testing.samples import a_claim
from backburner_apps.inbox import telegram as bot_api
from backburner_apps.inbox.markup import bold, escape, split
from backburner_apps.inbox.notifying import Notification, notify
from backburner_apps.inbox.settings import InboxSettings
from tests.apps.inbox.conftest import SUCCEEDED
from tests.apps.inbox.fake_bot import DROP, HANG, TOKEN, shown, units
from tests.apps.tasks.test_retries import delays, run

CODE = "QUEUE_NOTIFICATION_SEND_FAILED"
FAMILY = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
THUMB = "\N{THUMBS UP SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-5}"
OK = b'{"ok": true, "result": {"message_id": 5}}'
LATER = b'{"ok": false, "error_code": 429, "parameters": {"retry_after": 17}}'
BLOCKED = b'{"ok": false, "error_code": 403, "description": "bot was blocked"}'


def parts(text, mode, limit):
    found = []
    while text:
        first, text = split(text, mode, limit)
        found.append(first)
    return found


def squeezed(text):
    return "".join(text.split())


@pytest.mark.parametrize("mode", ["HTML", "Markdown"])
@given(
    st.lists(st.text(st.sampled_from("ab <>&*_`[\\\n\N{PARTY POPPER}é")), max_size=8),
    st.integers(min_value=8, max_value=40),
)
def test_parts_are_short_and_readable_and_nothing_is_lost(mode, said, limit):
    text = "\n".join(
        bold(line, mode) if n % 2 else escape(line, mode) for n, line in enumerate(said)
    )
    found = parts(text, mode, limit)

    assert all(units(shown(part, mode)) <= limit for part in found)
    assert squeezed("\n".join(said)) == squeezed(
        "".join(shown(part, mode) for part in found)
    )


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("one two three", 8, ["one two", "three"]),
        ("one\ntwo three", 9, ["one two"[:3], "two three"]),
        ("a" * 10, 4, ["aaaa", "aaaa", "aa"]),
        ("\N{PARTY POPPER}" * 4, 5, ["\N{PARTY POPPER}" * 2] * 2),
        (FAMILY * 2, 10, [FAMILY] * 2),
        (THUMB * 3, 8, [THUMB * 2, THUMB]),
        ("<b>one two</b>", 4, ["<b>one</b>", "<b>two</b>"]),
        ("&amp;" * 5, 3, ["&amp;" * 3, "&amp;" * 2]),
        ("short", 5, ["short"]),
    ],
)
def test_a_text_is_cut_where_it_hurts_least(text, limit, expected):
    assert expected == parts(text, "HTML", limit)


class Api:
    """A `Fetcher` that answers by a list, the last again and again."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.requests = []

    async def fetch(self, request):
        self.requests.append(request)
        found = self._answers[0]
        if len(self._answers) > 1:
            self._answers.pop(0)
        if not isinstance(found, tuple):
            return found
        return Incoming(found[0], {}, found[1], request.url)


async def sending(*answers):
    """Run a notification to its end against a Bot API that answers so."""
    api = Api(*answers)
    value = Notification(chat_id=1, text="hello", parse_mode="HTML", correlation_id="c")
    changes = await run(
        notify,
        a_claim(input=orjson.dumps(value.plain()).decode()),
        http=lambda: Http(api, FrozenClock(), LIMITS),
        app_settings=AppSettings([InboxSettings(telegram_bot_token=TOKEN)]),
    )
    return api, changes


@pytest.mark.parametrize("trouble", [Silence.REFUSED, Silence.TIMED_OUT, (502, b"")])
async def test_a_bot_api_that_is_down_for_a_minute_costs_no_message(trouble):
    api, changes = await sending(*[trouble] * 6, (200, OK))

    assert [1000, 2000, 4000, 8000, 16_000, 32_000] == delays(changes)
    assert sum(delays(changes)) > 60_000
    assert SUCCEEDED is changes[-1].to
    [body] = {request.body for request in api.requests}
    assert {"chat_id": 1, "text": "hello", "parse_mode": "HTML"} == orjson.loads(body)


async def test_one_that_stays_down_is_a_dead_letter_in_the_end():
    _, changes = await sending(Silence.REFUSED)

    assert (JobState.FAILED, CODE) == (changes[-1].to, changes[-1].error.code)
    assert 10 == len(changes)


async def test_a_refusal_that_says_when_waits_that_long_and_costs_no_attempt():
    _, changes = await sending(*[(429, LATER)] * 12, (200, OK))

    assert [17_000] * 12 == delays(changes)
    assert SUCCEEDED is changes[-1].to


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"ok": "yes"}', b"\xff"])
async def test_an_answer_that_cannot_be_read_is_tried_again(body):
    _, changes = await sending((200, body), (200, OK))

    assert ([1000], SUCCEEDED) == (delays(changes), changes[-1].to)
    assert CODE == changes[0].error.code


@pytest.mark.parametrize(
    "answer", [(403, BLOCKED), (400, b""), (404, b""), Unusable.NOT_ALLOWED]
)
async def test_what_would_be_refused_again_is_not_repeated(answer):
    _, [change] = await sending(answer)

    assert (JobState.FAILED, CODE) == (change.to, change.error.code)
    assert TOKEN not in change.error.message


async def test_a_part_that_fails_is_sent_again_and_no_other(start):
    inbox = await start()
    inbox.bot.script.extend([None, (500, b""), DROP, None])
    await inbox.say("\N{PARTY POPPER}" * 4096)
    first, second = await inbox.bot.said(2)
    await inbox.rest()
    sends = [body["text"] for method, body in inbox.bot.calls]

    assert 4 == len(sends)
    assert [1, 3] == [sends.count(sends[0]), sends.count(sends[1])]
    assert first.startswith("✅")
    assert second.endswith("\N{PARTY POPPER}")


async def test_a_slow_bot_api_is_given_up_and_asked_again(start, monkeypatch):
    monkeypatch.setattr(bot_api, "SECONDS", 1.0)
    inbox = await start()
    inbox.bot.script.append(HANG)
    await inbox.say("Buy milk")
    await inbox.bot.said()
    await inbox.rest()
    [job] = await inbox.jobs("inbox.notify")

    assert SUCCEEDED is job.state
    assert job.attempt == len(inbox.bot.calls) > 1


async def test_a_refused_message_harms_no_other(start):
    inbox = await start()
    inbox.bot.script.append((403, BLOCKED))
    await inbox.say("Buy milk")
    await inbox.rest()
    await inbox.say("Buy bread")
    [reply] = await inbox.bot.said()
    await inbox.rest()
    states = [job.state for job in await inbox.jobs("inbox.notify")]

    assert "Buy bread" in reply
    assert {JobState.FAILED, SUCCEEDED} == {*states}
    assert 2 == len(await inbox.tasks()), "tasks do not depend on their reply"
