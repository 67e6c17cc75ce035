"""A page of the dashboard that stays open while its server ends and starts again."""

import signal

from backburner.client import AsyncClient
from tests.browser import a_tab

ROWS = "document.querySelectorAll('tbody tr').length"
PICKED = "[...document.querySelectorAll('tr.picked')].map(row => row.dataset.id)"
QUERY = "document.getElementById('query').value"


def connection(text):
    return f"document.querySelector('.connection')?.innerText === {text!r}"


async def submit(url, count):
    async with AsyncClient(url) as client:
        for n in range(count):
            await client.submit("demo.echo", {"n": n})


async def test_a_page_outlives_its_server_and_keeps_what_was_selected(serve):
    server = serve("--no-worker")
    await submit(server.url, 3)
    async with a_tab() as tab:
        await tab.open(f"{server.url}/ui/jobs")
        await tab.until(f"{ROWS} === 3 && {connection('Live')}")
        for key in "jxjx/":
            await tab.press(key)
        await tab.type("state:que")
        picked = await tab.evaluate(PICKED)
        server.told(signal.SIGKILL).exit_code()
        await tab.until(connection("Reconnecting…"))
        away = await tab.evaluate(PICKED)
        serve("--no-worker", "--port", server.port)
        await tab.until(connection("Live"))
        await submit(server.url, 1)
        await tab.until("document.querySelector('.fresh')?.innerText.includes('1 new')")
        await tab.click(".fresh")
        await tab.until(f"{ROWS} === 4")

        assert 2 == len(picked)
        assert picked == away == await tab.evaluate(PICKED)
        assert "state:que" == await tab.evaluate(QUERY)
        unexpected = [one for one in tab.errors if "net::ERR_" not in str(one)]
        assert [] == unexpected


async def test_a_page_that_is_loaded_while_the_store_is_away_waits_for_it(serve):
    """*Before: it showed the login form, where nobody needs a key.*"""
    server = serve("--no-worker")
    async with a_tab() as tab:
        await tab.page.route("**/v1/me", lambda route: route.fulfill(status=503))
        await tab.open(f"{server.url}/ui/jobs")
        await tab.until("document.body.innerText.includes('Trying again')")
        shown = await tab.evaluate("document.body.innerText")
        await tab.page.unroute("**/v1/me")
        await tab.until("document.body.innerText.includes('There are no jobs yet')")

        assert "Log in" not in shown
        assert "Trying again" not in await tab.evaluate("document.body.innerText")
