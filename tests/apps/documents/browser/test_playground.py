"""The dashboard's playground with documents: upload, search and ask."""

import pytest

PAGE = "document.querySelector('main').innerText"
FILES = "document.querySelector('[aria-label=\"Newest files\"]')?.innerText"
SEND = """(() => {
  const data = new DataTransfer()
  data.items.add(new File(['The pump moves 40 litres a minute.'], '<b>pump</b>.txt'))
  const field = document.getElementById('files')
  field.files = data.files
  field.dispatchEvent(new Event('change', {bubbles: true}))
})()"""


@pytest.mark.one_store
async def test_a_file_is_uploaded_found_and_asked_about(start, tab):
    documents = await start()
    await tab.open(f"{documents.url}/ui/playground/documents")
    await tab.until("document.getElementById('files')")
    await tab.evaluate(SEND)
    await tab.until(f"{FILES}?.includes('<b>pump</b>.txt')")
    await tab.until(f"{FILES}?.includes('ready')")
    await tab.click("[name=words]")
    await tab.type("litres")
    await tab.press("Enter")
    await tab.until(f"{PAGE}.includes('1 passage,')")
    await tab.until(f"{PAGE}.includes('40 litres')")
    await tab.click("#question")
    await tab.type("How many litres does the pump move?")
    await tab.click("form[aria-label=Question] button")
    await tab.until(
        "document.querySelector('.answer')?.innerText.includes('succeeded')"
    )
    sources = "document.querySelector('[aria-label=Sources]')?.innerText"
    await tab.until(f"{sources}?.includes('[1] <b>pump</b>.txt')")
    text = await tab.evaluate("document.querySelector('.answer pre').innerText")
    assert "[1]" in text
    assert "{" not in text, "it is the text alone"
    assert [] == tab.errors
