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


async def test_what_is_edited_as_json_is_kept_in_the_form(dashboard):
    """*Before: the form submitted its old values, and mistakes were left out.*"""
    box = "#json"
    await dashboard.log_in("user", tenant="herons", user="ann")
    await dashboard.visit("playground?capability=demo.fail")
    await dashboard.tab.until("document.getElementById('field-error')")
    await dashboard.click("Edit as JSON")
    await dashboard.tab.page.locator(box).fill('{"times": 0, "colour": "red"}')
    await dashboard.click("Edit as a form")
    await dashboard.shows("The form has no field “colour”", ".notice.bad")
    await dashboard.tab.page.locator(box).fill('{"times": 0, "error": "permanent"}')
    await dashboard.click("Edit as a form")
    await dashboard.tab.until("document.getElementById('field-times')?.value === '0'")
    await dashboard.tab.click("#field-retry_after")
    await dashboard.tab.page.keyboard.type("1e")
    await dashboard.click("Submit")
    await dashboard.shows("Enter a number.", "form")
    await dashboard.tab.page.locator("#field-retry_after").fill("")
    await dashboard.click("Submit")
    await dashboard.shows('"attempts": 1', ".answer")
    dashboard.check_quiet()


async def test_numbers_keep_their_digits_and_problems_are_no_answers(dashboard):
    """*Before: a problem of the server was shown as the answer.*"""
    await dashboard.log_in("user", tenant="herons", user="ann")
    await dashboard.visit("playground?capability=demo.echo")
    await dashboard.tab.until("document.getElementById('json')")
    body = '{"detail": "The store is busy."}'

    async def busy(route):
        await route.fulfill(status=503, body=body, content_type="application/json")

    await dashboard.tab.page.route("**/result", busy)
    await dashboard.tab.page.locator("#json").fill('{"big": 12345678901234567890}')
    await dashboard.click("Submit")
    await dashboard.shows("The store is busy.", ".answer .notice.bad")
    assert not await dashboard.tab.evaluate(
        "document.querySelector('[aria-label=Answer]')"
    )
    await dashboard.tab.page.unroute("**/result")
    await dashboard.click("Try again", ".answer button")
    await dashboard.shows("12345678901234567890", ".answer pre")
    dashboard.tab.messages.clear()  # the browser reports the 503
    dashboard.tab.errors.clear()


async def test_an_optional_boolean_is_sent_only_if_it_was_chosen(dashboard):
    await dashboard.log_in("user", tenant="herons", user="ann")
    await dashboard.visit("playground?capability=demo.echo")
    await dashboard.tab.until("document.getElementById('json')")
    schema = {"type": "object", "properties": {"loud": {"type": "boolean"}}}
    page = dashboard.tab.page

    async def changed(route):
        found = await route.fetch()
        told = await found.json()
        for one in told["items"]:
            one["input_schema"] = schema
        await route.fulfill(response=found, json=told)

    def is_submit(request):
        return "POST" == request.method and request.url.endswith("/v1/jobs")

    await page.route("**/v1/capabilities", changed)
    await dashboard.tab.reload()
    await dashboard.tab.until("document.getElementById('field-loud')")
    for clicks, sent in ((0, {}), (1, {"loud": True}), (1, {"loud": False})):
        for _ in range(clicks):
            await dashboard.tab.click("#field-loud")
        async with page.expect_request(is_submit) as made:
            await dashboard.click("Submit")
        assert sent == (await made.value).post_data_json["input"]
    await page.unroute("**/v1/capabilities")
