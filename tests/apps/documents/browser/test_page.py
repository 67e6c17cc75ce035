"""
The page of documents in a real browser, from the drop to the cited answer.

With BACKBURNER_TEST_SCREENSHOTS=folder, pictures of it are written to that folder.
"""

import os
from pathlib import Path

import pytest

from backburner import PermanentError
from backburner.engine.submit.submission import LOCAL
from backburner_apps.documents import work
from tests.apps.documents.browser.contrast import TOO_FAINT

READY = "document.querySelectorAll('.file.done').length"
BAD = "document.querySelector('.file.bad')"
SHOWS = "!document.getElementById('app').hidden"
NOTICE = "[...document.querySelectorAll('.notice p')].some(p => p.textContent === %r)"
RECORD = """(() => {
  window.seen = {bars: {}, answer: []}
  new MutationObserver(() => {
    for (const bar of document.querySelectorAll('progress')) {
      const values = window.seen.bars[bar.ariaLabel] ??= []
      if (values.at(-1) !== bar.value) values.push(bar.value)
    }
    const text = document.getElementById('answer-text').textContent
    if (text && window.seen.answer.at(-1) !== text) window.seen.answer.push(text)
  }).observe(document, {
    subtree: true, childList: true, attributes: true, characterData: true})
})()"""
FOCUS = "document.activeElement.id"


@pytest.fixture
def shoot(tab):
    """Write pictures where somebody wants to look at them."""
    folder = os.environ.get("BACKBURNER_TEST_SCREENSHOTS")  # noqa: TID251 - for people

    async def write(name):
        if folder:
            await tab.screenshot(Path(folder) / f"{name}.png")

    return write


@pytest.fixture
def broken(monkeypatch):
    """The name of the file whose text cannot be extracted, as long as it is here."""
    names = {"report.txt"}
    real = work.extract_text

    async def extract(path, name, limits):
        if name in names:
            raise PermanentError("The file is damaged.", code="CORRUPT_FILE")
        return await real(path, name, limits)

    monkeypatch.setattr(work, "extract_text", extract)
    return names


@pytest.mark.one_store
async def test_five_files_are_dropped_and_asked_about(start, tab, files, broken, shoot):
    documents = await start()
    await tab.open(f"{documents.url}/apps/documents/")
    await tab.until(SHOWS)
    await tab.until("!document.getElementById('no-batches').hidden")
    await shoot("empty")
    await tab.evaluate(RECORD)
    await tab.drop("#drop", files)
    await tab.until(f"{READY} === 4 && {BAD}")
    await tab.until(NOTICE % "Batch completed: 4/5 files processed")
    assert "The file is damaged." in await tab.evaluate(f"{BAD}.innerText")
    await tab.until("document.getElementById('failed-count').textContent === '1'")
    await shoot("one failed")
    broken.clear()
    await tab.click(".file.bad button")
    await tab.until(f"{READY} === 5")
    await tab.until(NOTICE % "Batch completed: 5/5 files processed")
    check_bars(await tab.evaluate("seen.bars"), files)
    await search(tab, "warranty")
    await shoot("search")
    await ask(tab, "How many litres does the pump move? [[mock: drip]]")
    await look_at(tab, shoot)
    await tab.until("document.getElementById('failed-count').hidden")
    assert [] == tab.errors


def check_bars(bars, files):
    """Check that bars only rise, in steps; of a file that failed, until then."""
    for file in files:
        values = bars[f"Progress of {file.name}"]
        rising = values if file.name != "report.txt" else values[: values.index(100)]
        assert sorted(rising) == rising, file.name
        assert 100 == values[-1]
        assert len(values) > 3, "its stages were seen"
    batch = bars["Batch of 5 files"]
    assert (100, True) == (batch[-1], 80 in batch)


async def look_at(tab, shoot):
    """Check that all text can be read, in every colour scheme and width."""
    for scheme in ("light", "dark"):
        for width in (1100, 360):
            await tab.look(scheme=scheme, width=width)
            assert [] == await tab.evaluate(TOO_FAINT), (scheme, width)
            assert width >= await tab.evaluate("document.body.scrollWidth")
            await shoot(f"answer {scheme} {width}")
    await tab.evaluate("document.getElementById('who').style.color = '#555'")
    await tab.evaluate("document.getElementById('who').textContent = 'faint'")
    assert await tab.evaluate(TOO_FAINT), "control: faint text is found"


async def search(tab, words):
    await tab.click("#question")
    await tab.type(words)
    await tab.press("Enter")
    found = await tab.until("document.querySelector('#results li')?.innerText")
    assert "warranty.txt" in found
    assert "The warranty lasts two years." in found
    bold = await tab.evaluate("document.querySelector('#results mark').textContent")
    assert words == bold


async def ask(tab, question):
    await tab.evaluate("document.getElementById('question').value = ''")
    await tab.click("#question")
    await tab.type(question)
    await tab.click("#find button[value=ask]")
    sources = await tab.until("document.querySelector('#sources')?.innerText")
    assert "manual.md" in sources
    text = await tab.evaluate("document.getElementById('answer-text').innerText")
    assert "The pump moves 40 litres of water per minute." in text
    assert text.rstrip().endswith("[1]")
    said = await tab.evaluate("seen.answer")
    assert text.strip() == said[-1].strip()
    await tab.click("#answer-text .citation")
    assert "#source-1" == await tab.evaluate("location.hash")


@pytest.mark.one_store
async def test_stalls_are_noticed_and_all_failures_are_retried(
    start, tab, files, broken, shoot
):
    documents = await start()
    broken |= {file.name for file in files}
    await tab.open(f"{documents.url}/apps/documents/")
    await tab.until(SHOWS)
    await tab.drop("#drop", files[:2])
    await tab.until("document.querySelectorAll('.file.bad').length === 2")
    batch, name = await tab.evaluate(
        "[document.querySelector('.batch').dataset.batch, "
        "document.querySelector('.file').innerText]"
    )
    assert "manual.md" in name
    file_id = (await documents.get("/api/v2/uploads/files")).json()["files"][-1]
    stall = {"fileId": file_id["fileId"], "stage": "extracting", "retryCount": 2}

    def publish(tx):
        tx.publish(f"batch:{batch}", "file:processing-stalled", stall, to=LOCAL)

    await documents.backburner.transact(publish)
    await tab.until(NOTICE % "File processing stalled (retry 2/3)")
    await tab.evaluate("document.getElementById('tab-uploads').focus()")
    await tab.press("ArrowRight")
    await tab.until("document.querySelectorAll('.failure').length === 2")
    assert "tab-failed" == await tab.evaluate(FOCUS)
    await shoot("failed")
    broken.clear()
    await tab.click("#retry-all")
    await tab.until(NOTICE % "2 of 2 files are processed again")
    await tab.press("ArrowLeft")
    await tab.evaluate("document.getElementById('tab-uploads').click()")
    await tab.until(f"{READY} === 2")
    await tab.reload()
    await tab.until(f"{READY} === 2 && !document.querySelector('.notice')")
    assert [] == tab.errors
