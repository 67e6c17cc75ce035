"""The playground: a form, a quote and the streamed answer, in a real browser."""

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "A heron waits for a fish <b>in the reeds</b>."


async def test_a_capability_is_tried_from_a_form(dashboard):
    await dashboard.log_in("user", tenant="herons", user="ann")
    await dashboard.tab.press("g")
    await dashboard.tab.press("p")
    await dashboard.visit("playground?capability=demo.write")
    await dashboard.tab.until("document.getElementById('field-seconds')?.value === '1'")
    await dashboard.tab.evaluate("document.getElementById('field-text').select()")
    await dashboard.tab.type(TEXT)
    await dashboard.tab.evaluate("document.getElementById('field-seconds').select()")
    await dashboard.tab.type("2")
    await dashboard.click("Metadata", "summary")
    await dashboard.tab.click("#metadata")
    await dashboard.tab.type("order")
    await dashboard.click("Submit")
    await dashboard.shows("name=text, one per line.", ".notice.bad")
    await dashboard.tab.click("#metadata")
    await dashboard.tab.press("End")
    await dashboard.tab.type("=A-1042")
    await dashboard.click("Get a quote")
    await dashboard.shows("0 jobs ahead", ".quote")
    await dashboard.check("playground")
    await dashboard.click("Submit")
    await dashboard.tab.until(
        "document.querySelector('[aria-label=\"Text so far\"]')"
        "?.innerText.startsWith('A heron')"
    )
    await dashboard.shows("succeeded", ".answer")
    await dashboard.tab.until(
        f"document.querySelector('[aria-label=Answer]')?.innerText.includes({TEXT!r})"
    )
    await dashboard.check("playground answer")
    await dashboard.click("Open the job", "a")
    await dashboard.shows("demo.write", "h1")
    await dashboard.shows("order\nA-1042", ".facts")
    dashboard.check_quiet()


async def test_other_inputs_are_entered_as_json_and_mistakes_are_said(dashboard):
    await dashboard.log_in("user", tenant="herons", user="ann")
    await dashboard.visit("playground?capability=demo.echo")
    await dashboard.tab.until("document.getElementById('json')")
    await dashboard.tab.evaluate("document.getElementById('json').select()")
    await dashboard.tab.type('{"a": ')
    await dashboard.click("Submit")
    await dashboard.shows("The input is not valid JSON", ".notice.bad")
    await dashboard.tab.evaluate("document.getElementById('json').select()")
    await dashboard.tab.type('{"a": [1, 2]}')
    await dashboard.click("Submit")
    await dashboard.shows('"a": [', ".answer")
    await dashboard.visit("playground?capability=demo.fail")
    await dashboard.tab.until("document.getElementById('field-error')")
    await dashboard.click("Edit as JSON")
    await dashboard.tab.until(
        "document.getElementById('json')?.value.includes('transient')"
    )
    await dashboard.log_in("tenant-operator", tenant="herons")
    assert "Playground" not in await dashboard.tab.evaluate("document.body.innerText")
