"""Lanes and questions, in a real browser."""

import pytest

from backburner.domain.jobs.job import Owner
from backburner.domain.lanes.lane import Lane
from backburner.domain.lanes.permit import PermitRequest
from backburner.domain.lanes.rate_limit_headers import RateLimitInfo
from backburner.engine.submit.submission import Options
from backburner.ports.store.workers import WorkerInfo

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANN = Owner("owls", "ann")
WORKER = WorkerInfo("w_ui", "here", 1, 8, ("none",), 0)
HOSTILE = "Send <b>this</b> to \u202e5 customers\u001b[31m?"


async def call(store, lane, number, *, worker=None, is_refused=False, is_over=True):
    """Ask for leave; say what the provider answered, if it answered."""
    ask = PermitRequest(f"p_{lane}_{number}")
    permit = await store.take_permit(lane, worker or WORKER.id, ask)
    if is_over and hasattr(permit, "at"):
        told = RateLimitInfo(is_refused=is_refused, wait=90_000 if is_refused else None)
        await store.give_permit(lane, permit, told, ask)


async def test_a_lane_shows_its_limit_its_refusals_and_who_waits(dashboard):
    store = dashboard.server.backburner.engine.store
    await dashboard.log_in("platform-operator", tenant="default")
    await dashboard.visit("lanes")
    await dashboard.shows("No provider has been called yet")
    await dashboard.check("lanes empty")
    await store.enlist(WORKER)
    await store.declare_lanes(
        [
            Lane("anthropic/claude-sonnet#team-a", 50, 400_000, at_once=10),
            Lane("openai/gpt-5-mini", 500, at_once=20),
        ]
    )
    for number in range(3):
        await call(store, "anthropic/claude-sonnet#team-a", number)
        await call(store, "openai/gpt-5-mini", number, is_over=number > 0)
    for number in range(9):
        await call(store, "mistral/large#9f3c2a10", number, is_refused=number == 8)
    for number in range(40):
        await call(store, "mistral/large#9f3c2a10", f"later-{number}")
    await dashboard.shows("opens in", "tbody")
    row = (
        "[...document.querySelectorAll('tbody tr')].find(row => row.innerText"
        ".startsWith('mistral')).innerText"
    )
    # The page may have looked between two of the calls: it looks again.
    await dashboard.tab.until(f"{row}.split('\\t').includes('41')")
    shown = await dashboard.tab.evaluate(row)
    assert "parked" in shown
    assert "11 %" in shown
    await dashboard.check("lanes")
    await dashboard.log_in("tenant-administrator")
    assert "Lanes" not in await dashboard.tab.evaluate("document.body.innerText")


async def ask(dashboard, tenant="owls", **value):
    """Submit a job that asks, and wait until it does."""
    engine, owner = dashboard.server.backburner.engine, Owner(tenant, "ann")
    made = await engine.submit("ui.ask", value, Options(owner=owner))
    async for event in engine.events(await engine.find(made.id, owner), after=0):
        if event.type == "job.waiting":
            return made.id
    raise AssertionError("the job did not ask")


async def test_who_may_not_answer_sees_no_control(dashboard):
    await dashboard.log_in("tenant-operator", tenant="larks")
    await dashboard.visit("questions")
    await dashboard.shows("No open questions")
    await ask(dashboard, "larks", question=HOSTILE)
    await dashboard.shows("Send <b>this</b> to ⟨202E⟩5 customers⟨001B⟩[31m?")
    await dashboard.shows("continues with Hold it back", ".question")
    await dashboard.shows("a key with the scope questions:answer", ".question")
    assert not await dashboard.tab.evaluate("document.querySelector('.reply button')")
    await ask(dashboard, "larks", question="Another one?")
    await dashboard.click("Show 1 new")
    await dashboard.tab.until("document.querySelectorAll('.question').length === 2")
    dashboard.check_quiet()


async def test_a_job_that_asks_leads_to_its_question(dashboard):
    """*Before: the page said that it waits for a person, and not where to answer.*"""
    made = await ask(dashboard, "terns", question="Go?")
    await dashboard.log_in(tenant="terns")
    await dashboard.visit(f"jobs/{made}")
    await dashboard.shows("The wait ends in", ".now")
    await dashboard.check("job that asks")
    await dashboard.click("Questions", ".now a")
    await dashboard.shows("Go?", ".question")
    dashboard.check_quiet()


async def test_questions_are_answered_once(dashboard):
    engine = dashboard.server.backburner.engine
    first = await ask(dashboard, question="Send the invoice to ACME?")
    form = await ask(dashboard, question="Refund order 4711?", form=True)
    taken = await ask(dashboard, question="Send the newsletter to 12,000 people?")
    await dashboard.log_in(tenant="owls")
    await dashboard.visit("questions")
    await dashboard.shows("3 open")
    await dashboard.check("questions")

    await dashboard.tab.click(".question:last-child .reply button")
    await dashboard.shows("Answer “Send it”?", "dialog")
    await dashboard.click("Send the answer", "dialog button")
    await dashboard.shows("You answered Send it", ".question:last-child")
    job = await engine.wait(first, ANN, timeout=60)
    assert '"Send it"' == job.output
    await fill_in(dashboard)
    job = await engine.wait(form, ANN, timeout=60)
    assert '"amount":1250,"reason":"late"' in job.output

    # Somebody else is faster: the page says so, and what is shown stays in its place.
    [left] = await engine.questions(ANN, before=None, limit=9)
    await engine.answer(taken, left.name, "Hold it back", ANN)
    await dashboard.shows("no longer open", ".question:first-child")
    count = "document.querySelectorAll('.question').length"
    assert 3 == await dashboard.tab.evaluate(count)
    entries = await engine.store.audited("owls", before=None, limit=2)
    assert {"question.answered"} == {entry.action for entry in entries}
    await dashboard.check("questions answered")


async def fill_in(dashboard):
    """Answer by the form, which follows the type that the handler asked for."""
    await dashboard.click("Answer…", "form button")
    await dashboard.shows("This field is required.", "form")
    await dashboard.tab.click("form input[type=checkbox]")
    await dashboard.tab.click("form input[type=number]")
    await dashboard.tab.type("1250")
    await dashboard.tab.evaluate(
        "(() => { const found = document.querySelector('form select');"
        "found.value = '1';"
        "found.dispatchEvent(new Event('input', {bubbles: true})) })()"
    )
    await dashboard.click("Answer…", "form button")
    await dashboard.click("Send the answer", "dialog button")
    await dashboard.shows("You answered", ".question:nth-child(2)")
