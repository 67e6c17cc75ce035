"""
How soon Chromium paints the dashboard's views, for `bench.dashboard`.

A view is loaded again and again, with an empty cache and with a full one. The browser
reports the first paint, the first paint of content and when the view shows its data.
"""

import asyncio
import statistics
from collections.abc import AsyncIterator
from typing import Any, Final

from tests.browser import Tab, a_tab

LOADS: Final = 21
PATIENCE_SECONDS: Final = 30
VIEWS: Final = {
    # What is there when the data that the view is about has arrived.
    "overview": "[...document.querySelectorAll('.tile b')].length > 4 &&"
    " [...document.querySelectorAll('.tile b')].every(one => one.innerText != '…')"
    " && document.querySelector('.chart svg')",
    "jobs": "document.querySelectorAll('main tbody tr').length > 9",
    "jobs/job_50001": "document.querySelector('.timeline li')",
    "cost": "document.querySelector('main table tbody tr, main .budget')",
    "fleet": "document.querySelectorAll('main tbody tr').length > 1",
}
REPORT: Final = """new Promise(done => {
  const look = () => {
    if (!(%s)) return requestAnimationFrame(look)
    const paints = Object.fromEntries(
      performance.getEntriesByType('paint').map(one => [one.name, one.startTime]))
    done({...paints, data: performance.now()})
  }
  look()
})"""


async def paints(address: str, key: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the times of each view, in milliseconds since the page was asked for."""
    async with a_tab() as tab:
        await tab.open(f"{address}/ui/")
        await tab.click("#key")
        await tab.type(key)
        await tab.press("Enter")
        await tab.until("document.querySelector('nav')")
        for view, shows in VIEWS.items():
            for cache in ("empty", "full"):
                found = await _loaded(tab, f"{address}/ui/{view}", shows, cache)
                yield {"view": view, "cache": cache, **found}


async def _loaded(tab: Tab, url: str, shows: str, cache: str) -> dict[str, Any]:
    """Load a view many times; return the middle and the ends of what it reported."""
    seen: dict[str, list[float]] = {}
    for turn in range(LOADS + 1):
        if cache == "empty":
            await tab.send("Network.clearBrowserCache")
        await tab.open("about:blank")
        await tab.open(url)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                found = await tab.evaluate(REPORT % shows)
        except TimeoutError:
            text = await tab.evaluate("document.body.innerText")
            raise SystemExit(f"{url} did not show {shows}: {text}") from None
        if turn:  # the first load fills caches of the server
            for name, at in found.items():
                seen.setdefault(name, []).append(at)
    return {
        f"{name.replace('-', '_')}_ms": {
            "p50": round(statistics.median(times)),
            "least": round(min(times)),
            "most": round(max(times)),
        }
        for name, times in seen.items()
    }
