"""Uploads from the page to an object store, which is another origin."""

import pytest

from backburner import Backburner

pytestmark = pytest.mark.one_store
NOT_UPLOADED = "document.querySelector('.file.bad')?.innerText"


async def test_the_page_uploads_to_the_object_store(start, tab, files, s3_url):
    documents = await start(blobs=s3_url)
    await tab.open(f"{documents.url}/apps/documents/")
    await tab.until("!document.getElementById('app').hidden")
    await tab.drop("#drop", files[:1])
    await tab.until("document.querySelectorAll('.file.done').length === 1")

    assert [] == tab.errors


async def test_the_browser_refuses_an_origin_that_the_page_does_not_name(
    start, tab, files, s3_url, monkeypatch
):
    async def none(_backburner):
        return ()

    monkeypatch.setattr(Backburner, "upload_origins", none)
    documents = await start(blobs=s3_url)
    await tab.open(f"{documents.url}/apps/documents/")
    await tab.until("!document.getElementById('app').hidden")
    await tab.drop("#drop", files[:1])

    assert "The upload was interrupted." in await tab.until(NOT_UPLOADED)
    assert "Content Security Policy" in str(tab.errors)
