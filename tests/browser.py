"""
A tab of Debian's Chromium, driven by Playwright as a person would drive it.

A click waits until its target is visible, holds still and is not covered. `errors` has
everything that the page reported as an error, `messages` all of the console, `requests`
the URLs that were asked for.
"""

import asyncio
import json
from contextlib import asynccontextmanager

from playwright.async_api import Error, async_playwright

from tests.chromium import PATIENCE_SECONDS, program

OPTIONS = ("--no-sandbox", "--disable-dev-shm-usage", "--no-proxy-server")
WAIT = """new Promise(done => {
  const look = () => {
    let value = null
    try { value = (%s) } catch { /* the page is not complete yet */ }
    if (!value) return
    watch.disconnect()
    done(value)
  }
  const watch = new MutationObserver(look)
  watch.observe(document, {
    subtree: true, childList: true, attributes: true, characterData: true,
  })
  look()
})"""


class Navigated(Exception):
    """The page was left while it was asked."""


class Tab:
    """One tab, and what its pages reported."""

    def __init__(self, page, session):
        self.page = page
        self.errors = []
        self.messages = []
        self.requests = []
        self._session = session
        page.set_default_timeout(PATIENCE_SECONDS * 1000)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note)

    def _note(self, message):
        said = (message.type, message.text, message.location)
        self.messages.append(said)
        if message.type == "error":
            self.errors.append(said)

    async def send(self, method, **params):
        """Send a command of the DevTools protocol and return its result."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await self._session.send(method, params)
        except Error as error:
            if "navigated" in error.message:
                raise Navigated from None
            raise

    async def evaluate(self, expression):
        """
        Return the value of an expression in the page; a promise is awaited.

        Playwright's own way calls `eval`, which the policy of the pages forbids.
        """
        told = await self.send(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def until(self, expression):
        """Wait until an expression is true in the page; return its value."""
        try:
            return await self.evaluate(WAIT % expression)
        except Navigated:
            return await self.until(expression)
        except TimeoutError:
            text = await self.evaluate("document.body.innerText")
            raise AssertionError(f"{expression} was not so: {text}") from None

    async def open(self, url):
        """Go to a page and wait until it has arrived."""
        await self.page.goto(url, wait_until="commit")
        await self.until(f"location.href === {json.dumps(url)} && document.body")

    async def reload(self):
        """Load the page again."""
        await self.page.reload()

    async def click(self, selector):
        """Click the middle of an element, as a mouse does."""
        await self.page.locator(selector).first.click()

    async def press(self, key):
        """Press a key."""
        await self.page.keyboard.press(key)

    async def type(self, text):
        """Type a text into what has the focus."""
        await self.page.keyboard.insert_text(text)

    async def drop(self, selector, files):
        """Drop files onto an element."""
        data = {"items": [], "files": [*map(str, files)], "dragOperationsMask": 1}
        target = self.page.locator(selector)
        await target.scroll_into_view_if_needed()
        box = await target.bounding_box()
        place = {
            "x": box["x"] + box["width"] / 2,
            "y": box["y"] + box["height"] / 2,
        }
        for kind in ("dragEnter", "dragOver", "drop"):
            await self.send("Input.dispatchDragEvent", type=kind, data=data, **place)

    async def look(self, *, width=1100, height=900, scheme="light"):
        """Set the size of the window and the colours that the reader prefers."""
        await self.page.set_viewport_size({"width": width, "height": height})
        await self.page.emulate_media(color_scheme=scheme)

    async def screenshot(self, path):
        """Write a picture of the whole page."""
        await self.page.screenshot(path=path, full_page=True)


@asynccontextmanager
async def a_tab():
    """Start a browser with an empty tab; it is ended when the block is left."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program(), args=OPTIONS
        )
        try:
            context = await browser.new_context()
            page = await context.new_page()
            yield Tab(page, await context.new_cdp_session(page))
        finally:
            await browser.close()
