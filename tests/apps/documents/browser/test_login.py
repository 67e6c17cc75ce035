"""The page of a server with API keys: log in, upload by cookie, log out."""

import json

import pytest

from tests.apps.documents.conftest import USER

KEY = "document.getElementById('key').value = %s"
SHOWS = "!document.getElementById('%s').hidden"


@pytest.mark.one_store
async def test_a_key_becomes_a_session_that_uploads_and_sees_its_own_files_only(
    start, tab, files
):
    documents = await start(keyed=True, cookie_secure=False)
    ann, bob = await documents.key("ann"), await documents.key("bob")
    page = f"{documents.url}/apps/documents/"
    await tab.open(page)
    await log_in(tab, "bb_live_nothing")
    await tab.until("document.querySelector('#login .error').textContent")
    assert await tab.evaluate(SHOWS % "login")
    tab.errors.clear()  # the browser reports answers with 401
    await log_in(tab, ann.headers["Authorization"].removeprefix("Bearer "))
    await tab.until(SHOWS % "app")
    await tab.drop("#drop", files[:2])
    await tab.until("document.querySelectorAll('.file.done').length === 2")
    assert "ann · default" == await tab.evaluate(
        "document.getElementById('who').textContent"
    )
    await tab.reload()
    await tab.until("document.querySelectorAll('.file.done').length === 2")
    assert [] == tab.errors
    assert "bb_live" not in await tab.evaluate(
        "JSON.stringify([document.cookie, {...localStorage}, document.body.innerHTML])"
    )
    await tab.click("#log-out")
    await tab.until(SHOWS % "login")
    await log_in(tab, bob.headers["Authorization"].removeprefix("Bearer "))
    await tab.until(f"{SHOWS % 'app'} && {SHOWS % 'no-batches'}")
    assert 0 == await tab.evaluate("document.querySelectorAll('.file').length")


async def log_in(tab, key):
    await tab.until(SHOWS % "login")
    await tab.evaluate(KEY % json.dumps(key))
    await tab.click("#login button")


@pytest.mark.one_store
async def test_an_administrator_sees_and_retries_the_failures_of_others(start, tab):
    documents = await start(keyed=True, cookie_secure=False)
    ann = await documents.key("ann")
    admin = await documents.key(None, *USER, "tenant:read")
    batch = await ann.batch()
    file_id = await ann.upload(batch, b"", "empty.txt")
    assert "failed" == (await ann.ended(file_id))["status"]
    await ann.completed(batch)
    await tab.open(f"{documents.url}/apps/documents/")
    await log_in(tab, admin.headers["Authorization"].removeprefix("Bearer "))
    await tab.until("document.getElementById('failed-count').textContent === '1'")
    await tab.click("#tab-failed")
    await tab.until("document.querySelector('.failure')")
    text = await tab.evaluate("document.querySelector('.failure').innerText")
    assert "empty.txt" in text
    await tab.click(".failure button")
    await tab.until("document.querySelector('.notice')?.innerText.includes('again')")
    assert 2 == len(await ann.until_event(batch, "batch:completed", 2))
