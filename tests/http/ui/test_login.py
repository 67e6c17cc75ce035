"""Logins that end, fail or belong to somebody else, in a real browser."""

import pytest

from backburner.domain.jobs.job import Owner
from backburner.engine.access.keys import Actor, NewKey
from backburner.engine.submit.submission import Options

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAVIGATION = "[...document.querySelectorAll('nav a')].map(one => one.innerText)"


async def a_key(dashboard, *scopes, tenant="acme"):
    wanted = NewKey("few scopes", frozenset(scopes))
    made, text = await dashboard.server.backburner.keys.create(
        wanted, Actor("t", tenant)
    )
    return made.id, text


async def in_another_tenant(dashboard, name):
    """Log in as a platform administrator and act in another tenant."""
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.click("default", ".who button")
    await dashboard.tab.page.locator("dialog [name=tenant]").fill(name)
    await dashboard.click("Switch tenant", "dialog button")


async def test_a_tenant_that_cannot_be_is_refused_at_once(dashboard):
    await in_another_tenant(dashboard, "acme corp")
    await dashboard.tab.until("document.querySelector('dialog[open] input:invalid')")
    assert not await dashboard.tab.evaluate("sessionStorage['backburner-tenant']")


async def test_a_tenant_that_cannot_be_is_left(dashboard):
    """*Before: the page tried again for ever, also after a reload.*"""
    await dashboard.log_in("platform-administrator", tenant="default")
    await dashboard.tab.evaluate("sessionStorage['backburner-tenant'] = 'acme corp'")
    await dashboard.tab.reload()
    await dashboard.shows("Live", ".connection")
    await dashboard.shows("default", ".who")
    dashboard.forget_errors()  # the browser reports the 422


async def test_a_logout_in_another_tab_ends_the_choice_of_a_tenant(dashboard):
    """*Before: who logged in next acted in that tenant, or was refused.*"""
    owner = Owner("storks", "ann")
    engine = dashboard.server.backburner.engine
    await engine.submit("demo.echo", {}, Options(owner=owner))
    await in_another_tenant(dashboard, "storks")
    await dashboard.shows("storks", ".who")
    page = await dashboard.tab.page.context.new_page()
    await page.goto(f"{dashboard.server.url}/ui/jobs")
    await page.get_by_role("button", name="Log out").click()
    await dashboard.shows("Log in to Backburner")
    _, text = await dashboard.key("platform-administrator", tenant="default")
    await dashboard.type_key(text)
    await dashboard.shows("default", ".who")
    await page.close()
    dashboard.forget_errors()  # requests that the logout overtook


async def test_a_logout_that_fails_says_so(dashboard):
    """*Before: the login form was shown, while the login went on.*"""
    await dashboard.log_in()

    async def refuse(route):
        is_logout = route.request.method == "DELETE"
        await (route.abort() if is_logout else route.continue_())

    await dashboard.tab.page.route("**/v1/session", refuse)
    await dashboard.click("Log out")
    await dashboard.shows("You are still logged in", "[role=alert]")
    await dashboard.shows("acme", ".who")
    await dashboard.tab.page.unroute("**/v1/session")
    await dashboard.click("Log out")
    await dashboard.shows("Log in to Backburner")
    dashboard.forget_errors()  # the browser reports the request that failed


async def test_a_login_that_is_refused_can_be_ended(dashboard):
    """*Before: the page tried again for ever, without a way out.*"""
    await dashboard.log_in()

    async def refuse(route):
        await route.fulfill(status=403, json={"detail": "this requires a scope"})

    await dashboard.tab.page.route("**/v1/me", refuse)
    await dashboard.tab.reload()
    await dashboard.shows("this requires a scope", ".notice")
    dashboard.forget_errors()  # the browser reports the 403
    await dashboard.check("login refused")
    await dashboard.click("Log out")
    await dashboard.tab.until("!document.querySelector('.notice')")
    await dashboard.tab.page.unroute("**/v1/me")
    await dashboard.tab.reload()
    await dashboard.shows("Log in to Backburner")
    assert [] == await dashboard.tab.page.context.cookies()
    dashboard.forget_errors()  # the browser reports the 403


async def test_a_page_that_waits_for_its_server_offers_to_log_out(dashboard):
    await dashboard.log_in()

    async def refuse(route):
        await route.fulfill(status=503)

    await dashboard.tab.page.route("**/v1/me", refuse)
    await dashboard.tab.reload()
    await dashboard.shows("Trying again", ".notice")
    await dashboard.click("Log out")
    await dashboard.shows("Log in to Backburner")
    await dashboard.tab.page.unroute("**/v1/me")
    dashboard.forget_errors()  # the browser reports the 503


async def test_a_key_that_may_only_answer_sees_the_questions(dashboard):
    """*Before: it could neither see them nor log out.*"""
    engine = dashboard.server.backburner.engine
    asked = {"question": "Send the invoice?"}
    job = await engine.submit("ui.ask", asked, Options(owner=Owner("acme", "bob")))
    await dashboard.log_in(
        key=await a_key(dashboard, "questions:answer"), streams=False
    )
    await dashboard.shows("Send the invoice?", ".question")
    await dashboard.check("questions of an approver")
    assert ["Questions"] == await dashboard.tab.evaluate(NAVIGATION)
    await dashboard.click("Send it")
    await dashboard.click("Send the answer", "dialog button")
    await dashboard.shows("You answered Send it", ".question")
    await engine.wait(job.id, Owner("acme", "bob"), timeout=60)
    await dashboard.click("Log out")
    await dashboard.shows("Log in to Backburner")
    dashboard.check_quiet()


async def test_a_key_that_may_only_see_queues_sees_them(dashboard):
    key = await a_key(dashboard, "queues:read", tenant="default")
    await dashboard.log_in(key=key, streams=False)
    await dashboard.shows("Lanes", "h1")
    expected = ["Lanes", "Fleet", "Admin"]
    assert expected == await dashboard.tab.evaluate(NAVIGATION)
    for name in expected:
        await dashboard.click(name, "nav a")
        await dashboard.shows(name, "h1")
    assert not await dashboard.tab.evaluate("document.querySelector('[role=alert] p')")
    dashboard.check_quiet()
