"""Keys from the command line, and when `serve` wants one."""

import json

import httpx2
import pytest

from backburner.domain.auth.access import (
    DEFAULT_SCOPES,
    PLATFORM_SCOPES,
    ROLES,
    SCOPES,
    Role,
)

PEPPER = "a pepper that only the tests know"
SECRETS = {
    "BACKBURNER_KEY_PEPPER": PEPPER,
    "BACKBURNER_WEBHOOK_SECRET": "a secret that only the tests know",
}
NO_PEPPER = "BACKBURNER_KEY_PEPPER is not set"


@pytest.fixture
def keys(run):
    """Run `backburner keys …` with the pepper set."""

    def call(*arguments, **env):
        return run("keys", *arguments, **{"BACKBURNER_KEY_PEPPER": PEPPER, **env})

    return call


@pytest.fixture
def keyed(start):
    """Start a server that wants keys; return it and its URL."""

    def begin(*arguments):
        server = start("serve", "--port", "0", *arguments, **SECRETS)
        return server, server.says("Backburner is ready at ").rpartition(" ")[2]

    return begin


def ask(url, key=None):
    """Ask a server for its jobs; return the status."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx2.get(f"{url}/v1/jobs", headers=headers, trust_env=False).status_code


def test_a_key_is_written_once_alone_on_stdout(keys):
    made = keys("create", "--name", "shop", "--scope", "jobs:read")
    text = made.stdout.strip()
    listed = keys("list")

    assert 0 == made.returncode
    assert text.startswith("bb_live_")
    assert 1 == len(made.stdout.splitlines())
    assert "not shown again" in made.stderr
    assert text.split("_")[2] in listed.stdout
    assert text.split("_")[3] not in listed.stdout + made.stderr + listed.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--role", "tenant-operator"], ROLES[Role.TENANT_OPERATOR]),
        (["--role", "user", "--scope", "audit:read"], DEFAULT_SCOPES | {"audit:read"}),
        (["--scope", "all"], SCOPES),
        (["--scope", "all", "--tenant", "acme"], SCOPES - PLATFORM_SCOPES),
        (["--scope", "all", "--user", "ann"], DEFAULT_SCOPES | {"keys:admin"}),
    ],
)
def test_a_key_has_the_scopes_of_its_role_or_all_that_it_can(keys, options, expected):
    made = keys("create", "--json", *options)

    assert sorted(expected) == json.loads(made.stdout)["scopes"]


def test_a_tenants_key_with_a_platform_role_is_refused(keys):
    made = keys("create", "--tenant", "acme", "--role", "platform-operator")

    assert 2 == made.returncode
    assert "only a key of the tenant 'default' can have" in made.stderr


def test_keys_are_told_as_json(keys):
    made = json.loads(
        keys(
            "create", "--tenant", "t", "--user", "u", "--expires-in", "1d", "--json"
        ).stdout
    )
    listed = json.loads(keys("list", "--json").stdout)

    assert made.pop("key").split("_")[2] == made["id"]
    assert made == listed
    assert ("t", "u", "valid") == (made["tenant"], made["user"], made["state"])
    assert [
        "dead-letters:read",
        "dead-letters:retry",
        "jobs:read",
        "jobs:write",
        "webhooks:read",
        "webhooks:write",
    ] == made["scopes"]


def test_a_key_is_revoked(keys):
    key_id = json.loads(keys("create", "--json").stdout)["id"]
    revoked = keys("revoke", key_id)
    again = keys("revoke", key_id, "--json")
    listed = json.loads(keys("list", "--json").stdout)

    assert (0, "revoked\n") == (revoked.returncode, revoked.stdout)
    assert {"id": key_id, "state": "revoked"} == json.loads(again.stdout)
    assert "revoked" == listed["state"]


@pytest.mark.parametrize(
    ("arguments", "env", "code", "reason"),
    [
        (["create"], {"BACKBURNER_KEY_PEPPER": ""}, 2, NO_PEPPER),
        (["create"], {"BACKBURNER_KEY_PEPPER": "short"}, 2, "must have 32 characters"),
        (["create", "--scope", "jobs:dance"], {}, 2, "must be some of"),
        (["create", "--expires-in", "soon"], {}, 2, "write 30s"),
        (["create", "--expires-in", "9999999d"], {}, 2, "too long"),
        (["create", "--name", ""], {}, 2, "name"),
        (["create", "--tenant", " "], {}, 2, "--tenant"),
        (["create", "--user", "a b"], {}, 2, "user"),
        (["create", "--store", "sqlite:////dev/null/x"], {}, 2, "--store: "),
        (["revoke", "nobody"], {}, 3, "no key has this ID"),
    ],
)
def test_what_cannot_be_done_is_one_line(keys, arguments, env, code, reason):
    ended = keys(*arguments, **env)

    assert code == ended.returncode
    assert reason in ended.stderr
    assert "short" not in ended.stderr
    assert (1, "") == (len(ended.stderr.splitlines()), ended.stdout)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])  # noqa: S104
def test_without_a_pepper_or_a_key_nothing_is_served(run, keys, host):
    no_pepper = run("serve", "--host", host, "--port", "0")
    no_key = run("serve", "--host", host, "--port", "0", **SECRETS)
    key_id = json.loads(keys("create", "--json").stdout)["id"]
    keys("revoke", key_id)
    no_good_key = run("serve", "--host", host, "--port", "0", **SECRETS)

    refused = (no_pepper, no_key, no_good_key)
    assert [2, 2, 2] == [ended.returncode for ended in refused]
    assert [1, 1, 1] == [len(ended.stderr.splitlines()) for ended in refused]
    assert NO_PEPPER in no_pepper.stderr
    assert "backburner keys create" in no_key.stderr
    assert no_key.stderr == no_good_key.stderr


def test_with_a_key_any_address_is_served_and_a_revocation_is_noticed(keys, keyed):
    key = keys("create").stdout.strip()
    server, url = keyed("--host", "0.0.0.0", "--no-worker")  # noqa: S104
    here = url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
    good, none = ask(here, key), ask(here)
    keys("revoke", key.split("_")[2])
    later = until_refused(here, key)
    key_lines = [line for line in server.lines if key.split("_")[3] in line]

    assert (200, 401) == (good, none)
    assert 401 == later
    assert [] == key_lines


def until_refused(url, key):
    """Ask until the key is refused, which takes seconds; return the last status."""
    while (status := ask(url, key)) == 200:
        pass
    return status


def test_development_needs_no_key_and_stays_on_this_machine(serve, run):
    server = serve("--no-worker")
    outside = run("serve", "--dev", "--host", "0.0.0.0")  # noqa: S104

    assert 200 == ask(server.url)
    assert 2 == outside.returncode
    assert "--host='0.0.0.0'" in outside.stderr
