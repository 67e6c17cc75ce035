"""How `serve` and `worker` start, and the one line with which they refuse to."""

import json
import socket

import httpx2
import pytest

AN_APP_THAT_RAISES = "1 / 0\n"
NO_APP = "app = 'a string'\n"
AN_APP = "from backburner import App\n\napp = App('right')\n"
KEYED = {"BACKBURNER_KEY_PEPPER": "p" * 32}
SIGNED = {**KEYED, "BACKBURNER_WEBHOOK_SECRET": "s" * 32}
THERE = {"TASKS_SERVICE_BASE_URL": "http://127.0.0.1:1"}
MOCK = {"BACKBURNER_AI": "mock"}


@pytest.mark.parametrize(
    ("arguments", "env", "reason"),
    [
        (["serve"], {}, "use --dev"),
        (["serve", "--dev", "--host", "0.0.0.0"], {}, "--host='0.0.0.0'"),  # noqa: S104
        (["serve", "--reload"], {}, "--reload works only in development: add --dev"),
        (["serve", "--host", "0.0.0.0"], {}, "use --dev"),  # noqa: S104
        (
            ["serve", "--dev", "--host", "no.such.host.invalid"],
            {},
            "cannot be resolved",
        ),
        (["serve", "--dev", "--port", "65536"], {}, "or equal to 65535, not '65536'"),
        (["serve", "--dev"], {"BACKBURNER_SLOTS": "none"}, "BACKBURNER_SLOTS: "),
        (["serve", "--dev"], {"BACKBURNER_SLOT": "1"}, "did you mean BACKBURNER_SLOTS"),
        (["serve", "--dev", "--log-level", "loud"], {}, "--log-level: "),
        (["worker", "--dev", "--store", "redis://x"], {}, "--store"),
        (["worker", "--dev", "--store", "sqlite://"], {}, "names no file"),
        (
            ["worker", "--dev", "--store", "sqlite:////dev/null/x"],
            {},
            "--store: ",
        ),
        (
            ["worker", "--dev", "--store", "sqlite:///text.db"],
            {},
            "text.db is not an SQLite database",
        ),
        (
            ["worker", "--dev"],
            {"BACKBURNER_STORE": "postgresql://ann:secret@127.0.0.1:1/jobs"},
            "BACKBURNER_STORE: connection refused; is PostgreSQL running at 127.0.0.1:",
        ),
        (
            ["worker", "--dev", "--store", "sqlite:///no/such.db"],
            {},
            "/no for such.db: create it, or correct the path",
        ),
        (["worker", "--dev"], {"BACKBURNER_FAULT": ":x"}, "BACKBURNER_FAULT"),
        (
            ["worker", "--dev"],
            {"BACKBURNER_TRANSPORT": "amqp://me:secret@127.0.0.1:1/"},
            "BACKBURNER_TRANSPORT: no broker answers at amqp://127.0.0.1:1",
        ),
        (
            ["serve", "--dev", "--port", "0"],
            {"BACKBURNER_TRANSPORT": "redis://:secret@127.0.0.1:1/0"},
            "BACKBURNER_TRANSPORT: no broker answers at redis://127.0.0.1:1",
        ),
        (
            ["worker", "--dev"],
            {"BACKBURNER_TRANSPORT": "kafka://here"},
            "BACKBURNER_TRANSPORT: no broker for 'kafka' URLs",
        ),
        (["worker", "--dev"], {"BACKBURNER_AI": "openai"}, "OPENAI_API_KEY is not set"),
        (
            ["serve", "--dev", "--port", "0"],
            {"BACKBURNER_AI": "openai"},
            "OPENAI_API_KEY is not set",
        ),
        (
            ["serve", "--dev", "--port", "0"],
            {"BACKBURNER_AI": "opena"},
            "BACKBURNER_AI: no provider",
        ),
        (
            ["serve", "--dev", "--port", "0"],
            {"OPENAI_BASE_URL": "here"},
            "OPENAI_BASE_URL",
        ),
        (["worker", "--app", "none:app"], {}, "No module named 'none': there is no"),
        (["worker", "--app", "lost:app"], {}, "No module named 'gone' ("),
        (["worker", "--app", "raises:app"], {}, "raises.py, line 1"),
        (["worker", "--app", "wrong:app"], {}, "a str, not a backburner.App"),
        (["worker", "--app", "wrong:none"], {}, "has no attribute 'none'"),
        (["worker", "--app", "absent"], {}, "name your own as module:app"),
        (["worker", "--app", "wrong"], {}, "name your own as wrong:app"),
        (["worker", "--app", "./wrong.py"], {}, "name your own as wrong:app"),
        (["worker", "--app", "right:ap"], {}, "'ap'; did you mean right:app?"),
        (["worker", "--app", "right:App"], {}, "did you mean right:app?"),
        (["worker", "--app", "right.py:app"], {}, "did you mean right:app?"),
        (["worker"], {"BACKBURNER_APPS": "wrong"}, "installed: ai, "),
        (["serve", "songs", "--dev"], {}, "no application is named 'songs'"),
        (
            ["worker", "--dev", "--queues", "nope,neither"],
            {},
            "no capability uses the queue 'nope'; known: backburner",
        ),
        (["worker", "--dev", "--queues", "nope"], {}, "queues=[Queue('nope')]"),
        (["worker"], {"BACKBURNER_APPS": ""}, "--app or BACKBURNER_APPS"),
        (["serve"], KEYED, "BACKBURNER_WEBHOOK_SECRET is not set"),
        (["serve", "tasks", "--dev"], THERE, "AI_SERVICE_BASE_URL is not set"),
        (["worker", "--app", "ai"], {**SIGNED, **THERE}, "BACKBURNER_AI is not set"),
    ],
)
def test_a_bad_start_is_one_line_and_code_2(run, tmp_path, arguments, env, reason):
    tmp_path.joinpath("raises.py").write_text(AN_APP_THAT_RAISES)
    tmp_path.joinpath("wrong.py").write_text(NO_APP)
    tmp_path.joinpath("right.py").write_text(AN_APP)
    tmp_path.joinpath("lost.py").write_text("import gone")
    tmp_path.joinpath("text.db").write_text("this is a text, not a database" * 100)

    ended = run(*arguments, **env)

    assert 2 == ended.returncode
    assert reason in ended.stderr
    assert "secret" not in ended.stderr
    assert 1 == len(ended.stderr.splitlines())


@pytest.mark.executed
def test_a_taken_port_is_named(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        ended = run("serve", "--dev", "--port", str(port))

    assert 2 == ended.returncode
    assert (
        f"--port={port} cannot be used: Address already in use; choose another"
        in ended.stderr
    )


@pytest.mark.executed
def test_the_variable_is_named_where_it_was_set(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        ended = run("serve", "--dev", BACKBURNER_PORT=port)

    assert f"BACKBURNER_PORT={port} cannot be used" in ended.stderr


def test_a_server_without_an_application_says_so(serve):
    alone, with_one = serve(BACKBURNER_APPS=""), serve()

    said = [
        any("this server runs none of your jobs" in line for line in server.lines)
        for server in (alone, with_one)
    ]
    assert [True, False] == said


def test_ipv6_loopback_is_served_too(serve, run):
    server = serve("--host", "::1")

    ended = run("submit", "demo.echo", '{"a": 6}', "--wait", "--url", server.url)

    assert server.url.startswith("http://[::1]:")
    assert '{"a": 6}\n' == ended.stdout


def test_only_the_applications_that_are_named_are_there(serve):
    none = serve(BACKBURNER_APPS="")
    both = serve(BACKBURNER_APPS="tasks, ai")
    one = serve("ai", BACKBURNER_APPS="", **THERE)

    assert [] == the_capabilities_of(none.url)
    assert (404, 404) == the_statuses_of(none.url)
    assert ["parse-task"] == the_capabilities_of(both.url)
    assert (200, 200) == the_statuses_of(both.url)
    assert ["parse-task"] == the_capabilities_of(one.url)
    assert (404, 200) == the_statuses_of(one.url), "the AI service has no tasks"


def the_capabilities_of(url):
    found = httpx2.get(f"{url}/v1/capabilities", trust_env=False).json()["items"]
    return [item["name"] for item in found]


def the_statuses_of(url):
    return tuple(
        httpx2.get(f"{url}/api/v1/{place}", trust_env=False).status_code
        for place in ("tasks", "capabilities")
    )


def test_doctor_reports_what_a_start_is_refused_for(run):
    ended = run("doctor", "tasks", "--app", "ai", "--json", **KEYED)
    sound = run("doctor", "--app", "ai", "--json", **SIGNED, **THERE, **MOCK)
    unknown = run("doctor", "songs", "--json")
    failed, passed, missing = (
        [(found["status"], found["message"]) for found in starts(words.stdout)]
        for words in (ended, sound, unknown)
    )

    assert (9, 9) == (ended.returncode, unknown.returncode)
    for name in (
        *("BACKBURNER_WEBHOOK_SECRET", "BACKBURNER_AI", "BACKBURNER_API_KEY"),
        *("TASKS_SERVICE_BASE_URL", "AI_SERVICE_BASE_URL"),
    ):
        assert any("fail" == kind and name in told for kind, told in failed), name
    assert [("pass", "all required settings are set; applications: ai")] == passed
    assert "BACKBURNER_LINK_SECRET is not set" in sound.stdout
    assert "no application is named 'songs'" in missing[0][1]


def starts(lines):
    told = [json.loads(line) for line in lines.splitlines()]
    return [found for found in told if found["name"] == "start"]


@pytest.mark.executed
def test_the_log_is_json_on_stderr(serve):
    server = serve()

    told = [json.loads(line) for line in server.lines if line.startswith("{")]

    assert "worker started" in {line["event"] for line in told}


def test_an_app_of_ones_own_is_found_in_the_current_folder(serve, run, gate):
    server = serve("--app", "gated:app")
    submitted = run("submit", "gated", '{"mine": true}', "--url", server.url)
    gate.reached()
    gate.opened()

    waited = run("wait", submitted.stdout.strip(), "--url", server.url)

    assert "succeeded\n" == waited.stdout


@pytest.mark.executed
def test_the_release_is_told(run):
    assert "0.1.0\n" == run("version").stdout == run("--version").stdout
    assert {"version": "0.1.0"} == json.loads(run("version", "--json").stdout)
