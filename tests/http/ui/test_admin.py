"""Keys, the audit log and the configuration, in a real browser."""

import json
import shlex

import pytest

from backburner.engine.access.keys import Actor, NewKey
from tests.http.conftest import PEPPER

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIELD = "document.getElementById('made')?.value"


async def test_a_key_is_made_used_and_revoked_and_the_log_says_so(dashboard):
    await dashboard.log_in(tenant="terns")
    await dashboard.tab.press("g")
    await dashboard.tab.press("a")
    await dashboard.shows("1 key of terns")
    await dashboard.click("New key")
    await dashboard.tab.until("document.activeElement.name === 'name'")
    await dashboard.tab.type("<b>web shop</b>")
    await dashboard.click("6 of", "summary")
    await dashboard.check("keys new")
    await dashboard.click("Create the key")
    await dashboard.tab.until(f"{FIELD}?.startsWith('bb_')")
    text = await dashboard.tab.evaluate(FIELD)
    headers = dashboard.server.shown(text)
    found = await dashboard.server.client.get("/v1/me", headers=headers)
    assert "user" == found.json()["role"]
    await dashboard.click("I have copied it")
    await dashboard.tab.until(f"{FIELD} === undefined")
    await dashboard.shows("<b>web shop</b>", "tbody")
    await dashboard.check("keys")
    await dashboard.tab.evaluate(
        "[...document.querySelectorAll('tbody tr')].find(row => row.innerText"
        ".includes('web shop')).querySelector('button').classList.add('aimed')"
    )
    await dashboard.tab.click("button.aimed")
    await dashboard.click("Revoke the key", "dialog button")
    await dashboard.shows("revoked", "tbody")
    refused = await dashboard.server.client.get("/v1/me", headers=headers)
    assert 401 == refused.status_code
    await dashboard.click("Audit log", ".tabs a")
    await dashboard.shows("key.revoked", "tbody")
    await dashboard.shows("key.created", "tbody")
    await dashboard.check("audit")
    assert "Configuration" not in await dashboard.tab.evaluate(
        "document.querySelector('main').innerText"
    )


async def test_a_key_is_given_a_role_that_its_maker_may_grant(dashboard):
    await dashboard.log_in()
    await dashboard.visit("admin")
    await dashboard.click("New key")
    form = dashboard.tab.page.locator("form[aria-label='New key']")
    offered = await form.locator("select option").all_inner_texts()
    await form.locator("select").select_option("tenant-operator")
    await form.locator("[name=name]").fill("night shift")
    await dashboard.click("Create the key")
    await dashboard.tab.until(f"{FIELD}?.startsWith('bb_')")
    headers = dashboard.server.shown(await dashboard.tab.evaluate(FIELD))
    found = await dashboard.server.client.get("/v1/me", headers=headers)

    assert "tenant-operator" == found.json()["role"]
    assert {} == found.json()["roles"], "it may make no keys"
    assert {"user", "tenant-administrator"} <= set(offered)
    assert "platform-operator" not in offered


async def test_the_configuration_is_for_platform_operators_and_shows_no_secret(
    dashboard,
):
    await dashboard.log_in("platform-operator", tenant="default")
    await dashboard.visit("admin/configuration")
    await dashboard.shows("a transaction was committed", "table")
    await dashboard.shows("BACKBURNER_KEY_PEPPER")
    shown = await dashboard.tab.evaluate("document.body.innerText")
    assert PEPPER not in shown
    await dashboard.check("configuration")
    await dashboard.tab.press("/")
    await dashboard.tab.type("pepper")
    await dashboard.tab.until(
        "document.querySelectorAll('.frame:last-of-type tbody tr').length === 1"
    )
    await dashboard.shows("set", ".frame:last-of-type tbody")
    assert "Keys" not in await dashboard.tab.evaluate(
        "document.querySelector('.tabs').innerText"
    )
    await dashboard.log_in("user", tenant="terns", user="ann")
    assert "Admin" not in await dashboard.tab.evaluate("document.body.innerText")
    _, text = await dashboard.key("tenant-administrator", tenant="terns")
    refused = await dashboard.server.client.get(
        "/v1/configuration", headers=dashboard.server.shown(text)
    )
    assert 403 == refused.status_code


async def test_a_key_with_more_scopes_is_not_offered_to_be_revoked(dashboard):
    keys = dashboard.server.backburner.keys
    scopes = frozenset({"keys:admin", "jobs:read", "audit:read"})
    made, text = await keys.create(NewKey("clerk", scopes), Actor("t", "stilts"))
    more, _ = await dashboard.key("tenant-administrator", tenant="stilts")
    refused = await dashboard.server.client.delete(
        f"/v1/keys/{more}", headers=dashboard.server.shown(text)
    )
    await dashboard.log_in(key=(made.id, text))
    await dashboard.visit("admin")
    await dashboard.shows("2 keys of stilts")
    revocable = await dashboard.tab.evaluate(
        "[...document.querySelectorAll('tbody tr')]"
        ".filter(row => row.querySelector('button')).map(row => row.innerText)"
    )
    assert 403 == refused.status_code
    assert 1 == len(revocable)
    assert "clerk" in revocable[0]


async def test_the_role_that_is_shown_is_the_one_of_the_scopes(dashboard):
    await dashboard.log_in(tenant="stilts")
    await dashboard.visit("admin")
    await dashboard.click("New key")
    role = "document.querySelector('form select').selectedOptions[0].innerText"
    await dashboard.tab.until(f"{role} === 'user'")
    await dashboard.tab.click("form details summary")
    await dashboard.tab.click("form .scopes input")
    await dashboard.tab.until(f"{role} === 'custom scopes'")


async def test_new_entries_of_the_audit_log_wait_for_a_click(dashboard):
    rows = "document.querySelectorAll('tbody tr').length"
    await dashboard.log_in(tenant="avocets")
    path, body = "/v1/keys", {"name": "first", "scopes": ["jobs:read"]}
    await dashboard.submit(path, body, tenant="avocets")
    await dashboard.visit("admin/audit")
    await dashboard.tab.until(f"{rows} > 0")
    before = await dashboard.tab.evaluate(rows)
    await dashboard.submit(path, {**body, "name": "second"}, tenant="avocets")
    # An event: the log has none of its own.
    ask = {"capability": "demo.echo", "input": {}}
    await dashboard.submit("/v1/jobs", ask, tenant="avocets")
    await dashboard.shows("new", ".fresh")
    assert before == await dashboard.tab.evaluate(rows)
    await dashboard.click("Show")
    await dashboard.tab.until(f"{rows} > {before}")


async def test_commands_quote_the_name_of_a_tenant(dashboard):
    """*Before: a shell read `&` as the end of the command; a long name was cut off.*"""
    await dashboard.log_in("platform-administrator", tenant="default")
    text = "document.querySelector('.command code')?.textContent"
    for tenant in ("plain", f"it's&{'l' * 50}"):
        chosen = f"sessionStorage['backburner-tenant'] = {json.dumps(tenant)}"
        await dashboard.tab.evaluate(chosen)
        for view, option in (("admin", "--tenant"), ("cost", "--of")):
            await dashboard.visit(view)
            command = await dashboard.tab.until(
                f"{text}?.includes('{option}') && {text}"
            )
            words = shlex.split(command)
            assert tenant == words[words.index(option) + 1]
            assert (tenant == "plain") == (f"{option} {tenant}" in command)
    await dashboard.tab.evaluate("sessionStorage.clear()")
    dashboard.check_quiet()
