"""How many events a translator takes at once, after pages that took too long."""

from types import SimpleNamespace

import pytest

from backburner.domain.errors import TransactionTooLong
from backburner.domain.events.translation import Selection, Translation, Untranslated
from backburner.engine.maintenance.translating import PAGE, Translator
from backburner.ports.faults import NoFaults


class Store:
    """Has always more to translate; notes how much it is asked for."""

    def __init__(self):
        self.asked = []

    async def untranslated(self, _application, _wanted, *, seen, limit):
        self.asked.append(limit)
        event = SimpleNamespace(event=SimpleNamespace(seq=seen + 1))
        return Untranslated(mark=seen, upto=seen + limit, events=[event], is_last=False)


class Engine:
    """Runs bodies of transactions, and fails before or after them on demand."""

    def __init__(self):
        self.store, self.before, self.after = Store(), None, None

    async def transact(self, body):
        if self.before:
            raise self.before
        done = body(SimpleNamespace(advance=lambda *_: True))
        if self.after:
            raise self.after
        return done


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def translator(engine):
    return Translator(
        "songs",
        Translation(["job.started"], lambda _tx, _event: None),
        Selection(frozenset(), frozenset(), frozenset()),
        engine=engine,
        notifier=SimpleNamespace(listen=lambda _: lambda: None),
        faults=NoFaults(),
    )


async def failed(translator, error):
    with pytest.raises(type(error)):
        await translator.look()


async def test_a_page_that_takes_too_long_is_followed_by_a_quarter(engine, translator):
    engine.after = TransactionTooLong(5.0)
    await failed(translator, engine.after)
    await failed(translator, engine.after)
    engine.after = None
    await translator.look()
    await translator.look()

    assert [PAGE, PAGE // 4, PAGE // 16, PAGE // 16 * 2] == engine.store.asked


async def test_who_waited_for_another_process_goes_on_with_a_whole_page(
    engine, translator
):
    engine.before = TransactionTooLong(5.0)
    await failed(translator, engine.before)
    engine.before = None
    await translator.look()

    assert [PAGE, PAGE] == engine.store.asked


async def test_after_any_other_failure_events_are_taken_one_by_one(engine, translator):
    engine.after = ValueError("a mistake of the application")
    await failed(translator, engine.after)
    await failed(translator, engine.after)

    assert [PAGE, 1] == engine.store.asked
