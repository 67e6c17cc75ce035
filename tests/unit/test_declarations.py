"""What an instance refuses to be given, before it opens anything."""

import pytest

from backburner import App, Backburner, Context
from backburner.adapters import find_store
from backburner.clock import SystemClock
from backburner.domain.errors import ConfigurationError
from backburner.ports.faults import NoFaults


async def plain(_ctx: Context, value: int) -> int:
    return value


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"capabilities": [plain]}, ""),
        ({"apps": [App("songs", capabilities=[plain])]}, "application 'songs': "),
        ({"apps": [App("songs", own=[plain])]}, "application 'songs': "),
    ],
)
def test_a_function_without_the_decorator_is_named(given, place):
    with pytest.raises(ConfigurationError) as raised:
        Backburner(store="sqlite:///jobs.db", **given)

    assert (
        f"{place}plain is a function, not a capability: decorate an async function "
        'with `@capability("plain")`'
    ) == str(raised.value)


def test_a_file_name_instead_of_a_url_of_a_store_is_refused():
    with pytest.raises(ConfigurationError, match=r"write sqlite:///jobs\.db or"):
        find_store("jobs.db", SystemClock(), NoFaults())
