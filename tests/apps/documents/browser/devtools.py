"""
A tab of a real Chromium, driven over the DevTools protocol.

It drops files, types, clicks, waits for what the page shows and takes screenshots.
`errors` has everything that the page reported as an error, `messages` all of the
console, `requests` the URLs that were asked for after `Network.enable`.
"""

import asyncio
import base64
import itertools
import json
import os
import signal
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
from websockets.asyncio.client import connect

from backburner.testing.broker.acts import pause
from tests.chromium import OPTIONS, PATIENCE_SECONDS, program

LARGEST = 64 * 1024 * 1024
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}
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
    """One tab, and the errors that its pages reported."""

    def __init__(self, socket):
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers = {}
        self.errors = []
        self.messages = []
        self.requests = []

    async def listen(self):
        """Take messages until the browser is gone."""
        async for text in self._socket:
            message = json.loads(text)
            if "id" in message:
                answer = self._answers.pop(message["id"])
                if not answer.done():  # else nobody waits for it any more
                    answer.set_result(message)
            else:
                self._note(message["method"], message["params"])

    def _note(self, method, params):
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(params["args"])
        elif method == "Log.entryAdded":
            self.messages.append(params["entry"])
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.errors.append(params["args"])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"])

    async def send(self, method, **params):
        """Send a command and return its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        await self._socket.send(json.dumps(message))
        async with asyncio.timeout(PATIENCE_SECONDS):
            told = await answer
        if "navigated" in told.get("error", {}).get("message", ""):
            raise Navigated
        assert "error" not in told, told
        return told["result"]

    async def evaluate(self, expression):
        """Return the value of an expression in the page; a promise is awaited."""
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
        """Go to a page and wait until it is loaded."""
        await self.send("Page.navigate", url=url)
        await self.until(f"location.href === {json.dumps(url)} && document.body")

    async def reload(self):
        """Load the page again and wait until it is another one."""
        await self.evaluate("window.isFormer = true")
        await self.send("Page.reload")
        await self.until("!window.isFormer && document.readyState === 'complete'")

    async def click(self, selector):
        """Click the middle of an element, as a mouse does."""
        place = await self.place(selector)
        for kind in ("mousePressed", "mouseReleased"):
            await self.send(
                "Input.dispatchMouseEvent",
                type=kind,
                button="left",
                clickCount=1,
                **place,
            )

    async def place(self, selector):
        """Return where the middle of an element is, scrolled into view."""
        named = json.dumps(selector)
        return await self.evaluate(
            f"(() => {{ const found = document.querySelector({named});"
            "found.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const box = found.getBoundingClientRect();"
            "return {x: box.x + box.width / 2, y: box.y + box.height / 2} })()"
        )

    async def press(self, key):
        """Press a key."""
        code = KEYS.get(key, ord(key[0]))
        more = {"text": "\r"} if key == "Enter" else {}
        if len(key) == 1:
            more = {"text": key}
        how = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        await self.send("Input.dispatchKeyEvent", type="keyDown", **how, **more)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **how)

    async def type(self, text):
        """Type a text into what has the focus."""
        await self.send("Input.insertText", text=text)

    async def drop(self, selector, files):
        """Drop files onto an element."""
        data = {"items": [], "files": [*map(str, files)], "dragOperationsMask": 1}
        place = await self.place(selector)
        for kind in ("dragEnter", "dragOver", "drop"):
            await self.send("Input.dispatchDragEvent", type=kind, data=data, **place)

    async def look(self, *, width=1100, height=900, scheme="light"):
        """Set the size of the window and the colours that the reader prefers."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        await self.send("Emulation.setScrollbarsHidden", hidden=True)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def screenshot(self, path):
        """Write a picture of the whole page."""
        shot = await self.send("Page.captureScreenshot", captureBeyondViewport=True)
        content = base64.b64decode(shot["data"])
        await asyncio.to_thread(Path(path).write_bytes, content)


@asynccontextmanager
async def a_usage_log(folder):
    """Start a browser with an empty tab; it is ended when the block is left."""
    browser = await asyncio.create_subprocess_exec(
        program(),
        *OPTIONS,
        f"--user-data-dir={folder}",
        "about:blank",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        address = await _address(Path(folder) / "DevToolsActivePort")
        async with connect(address, max_size=LARGEST, proxy=None) as socket:
            tab = Tab(socket)
            listening = asyncio.create_task(tab.listen())
            for domain in ("Page", "Runtime", "Log"):
                await tab.send(f"{domain}.enable")
            yield tab
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        await browser.wait()


async def _address(file):
    """Return the address of the tab when the browser has written its port."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not file.exists() or not file.read_text().strip():
            await pause()
        port = file.read_text().split()[0]
        async with httpx2.AsyncClient(trust_env=False) as client:
            while True:
                found = await client.get(f"http://127.0.0.1:{port}/json/list")
                for target in found.json():
                    if target["type"] == "page":
                        return target["webSocketDebuggerUrl"]
                await pause()
