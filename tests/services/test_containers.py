"""The image and the compose files, as far as they can be judged without an engine."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import httpx2
import pytest
import yaml

from backburner.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
FILES = [
    *("Dockerfile", "compose.yaml", "compose.source.yaml"),
    *("compose.dev.yaml", "compose.test.yaml"),
]
TRANSPORTS = {
    "database": "database",
    "rabbitmq": "amqp",
    "redis": "redis",
    "sqs": "sqs",
}
SECRETS = {
    "POSTGRES_PASSWORD": "not the real one",
    "BROKER_PASSWORD": "nor this",
    "BACKBURNER_KEY_PEPPER": "pepper " * 5,
    "BACKBURNER_LINK_SECRET": "link " * 7,
    "BACKBURNER_WEBHOOK_SECRET": "webhook " * 4,
}


@pytest.fixture
def compose(tmp_path):
    """Read compose files as the tool does; return what came of it."""
    command = [shutil.which("docker-compose") or ""]
    if not command[0]:
        if os.environ.get("CI") == "true":
            pytest.fail("docker-compose is not installed")
        pytest.skip("docker-compose is not installed: `make test` installs it")

    def read(*files, profile="database", env=SECRETS):
        named = [word for file in files for word in ("--file", ROOT / file)]
        named += ["--env-file", tmp_path / "none", "--profile", profile]
        (tmp_path / "none").touch()
        return subprocess.run(
            [*command, *named, "config"],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": os.environ["PATH"], **env},
        )

    return read


@pytest.mark.parametrize("profile", TRANSPORTS)
@pytest.mark.parametrize("more", [[], ["compose.source.yaml"]], ids=["", "source"])
def test_each_profile_is_an_instance_on_its_transport(compose, profile, more):
    done = compose("compose.yaml", *more, profile=profile)
    assert 0 == done.returncode, done.stderr
    services = yaml.safe_load(done.stdout)["services"]

    backburner = {
        name: service
        for name, service in services.items()
        if profile in service.get("profiles", []) and name.startswith(("api", "worker"))
    }
    schemes = {
        service["environment"]["BACKBURNER_TRANSPORT"].partition("://")[0]
        for service in backburner.values()
    }
    assert 2 == len(backburner), "an API and workers"
    assert {TRANSPORTS[profile]} == schemes


def test_no_application_runs_unless_it_is_named(compose):
    env = {**SECRETS, "BACKBURNER_APPS": "tasks,ai", "BACKBURNER_AI": "openai"}
    env |= {"OPENAI_API_KEY": "sk-1", "BACKBURNER_API_KEY": "bb_live_1"}
    plain, named = (
        the_processes(compose("compose.yaml", env=given)) for given in (SECRETS, env)
    )

    # The image's health check asks this port, of a server and of a worker.
    worker = ("worker", "--metrics-port", "8765")
    assert {("serve", "--no-worker"), worker} == {
        tuple(process["command"]) for process in (*plain, *named)
    }
    assert not any("healthcheck" in process for process in (*plain, *named))
    assert {("", "")} == {the_choice(process) for process in plain}
    assert {("tasks,ai", "openai")} == {the_choice(process) for process in named}
    for process in named:
        settings = process["environment"]
        assert ("sk-1", "bb_live_1") == (
            settings["OPENAI_API_KEY"],
            settings["BACKBURNER_API_KEY"],
        )
        assert {"http://api:8765"} == {
            settings["TASKS_SERVICE_BASE_URL"],
            settings["AI_SERVICE_BASE_URL"],
        }
        if process["command"][0] == "serve":
            assert ["api"] == process["networks"]["default"]["aliases"]


def the_processes(done):
    assert 0 == done.returncode, done.stderr
    services = yaml.safe_load(done.stdout)["services"].items()
    return [found for name, found in services if name.startswith(("api", "worker"))]


def the_choice(process):
    settings = process["environment"]
    return settings["BACKBURNER_APPS"], settings["BACKBURNER_AI"]


def test_development_is_two_services_and_a_broker_on_loopback(compose):
    done = compose("compose.dev.yaml", env={})
    assert 0 == done.returncode, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    published = {
        (name, str(port["host_ip"]), int(port["published"]))
        for name, service in services.items()
        for port in map(_port, service.get("ports", ()))
    }

    assert {"secrets", "tasks", "ai", "rabbitmq"} == services.keys()
    assert {
        ("tasks", "127.0.0.1", 3001),
        ("rabbitmq", "127.0.0.1", 5672),
        ("rabbitmq", "127.0.0.1", 15672),
    } == published


def _port(told):
    """Read a published port, which older tools write as a text."""
    if isinstance(told, dict):
        return told
    host, published, _ = told.split(":")
    return {"host_ip": host, "published": published}


class Development:
    """The programs of compose.dev.yaml, run as they are there, on this machine."""

    def __init__(self, folder, broker):
        self.ports = {"tasks": _free_port(), "ai": _free_port()}
        self._folder = folder
        replaced = {
            "/data": str(folder),
            "amqp://guest:guest@rabbitmq:5672/": broker,
            "${BACKBURNER_AI:-mock}": "mock",
            "${OPENAI_API_KEY:-}": '""',
            "${OPENAI_BASE_URL:-}": '""',
        } | {
            f"http://{name}:8765": f"http://127.0.0.1:{port}"
            for name, port in self.ports.items()
        }
        text = (ROOT / "compose.dev.yaml").read_text()
        for old, new in replaced.items():
            text = text.replace(old, new)
        self._services = yaml.safe_load(text)["services"]
        self._running = []

    def make_secrets(self):
        """Run what runs first; return what it prints."""
        done = subprocess.run(
            ["/bin/sh", ROOT / "tools" / "dev-secrets"],
            env=self._environment("secrets"),
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.stdout

    def start(self, name):
        """Start a service and wait until it is ready."""
        process = subprocess.Popen(
            self._services[name]["entrypoint"],
            cwd=self._folder,
            env=self._environment(name, BACKBURNER_PORT=str(self.ports[name])),
            stderr=subprocess.PIPE,
            text=True,
        )
        self._running.append(process)
        assert any("ready at" in line for line in process.stderr)

    def stop(self):
        for process in self._running:
            process.kill()
            process.communicate()

    def _environment(self, name, **more):
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"PATH": programs, "DEV_FOLDER": str(self._folder)}
        return {**own, **self._services[name]["environment"], **more}


@pytest.fixture
def development(tmp_path, rabbitmq_url):
    found = Development(tmp_path, rabbitmq_url)
    yield found
    found.stop()


def test_development_makes_its_secrets_once_and_a_task_by_the_key_it_prints(
    development, tmp_path
):
    told, again = development.make_secrets(), development.make_secrets()
    headers = {"Authorization": f"Bearer {re.search(r'key .* is (.*)', told)[1]}"}
    development.start("ai")
    development.start("tasks")
    url = f"http://127.0.0.1:{development.ports['tasks']}"
    with httpx2.Client(base_url=url, headers=headers, timeout=60) as client:
        body = '{"naturalLanguage": "buy milk tomorrow"}'
        made = client.post("/api/v1/tasks", content=body)
        deadline = time.monotonic() + 120
        state = "queued"
        while state in {"queued", "running"} and time.monotonic() < deadline:
            state = client.get(made.headers["location"]).json()["status"]

    assert told == again, "the second start makes nothing new"
    assert 0o600 == (tmp_path / "secrets" / "env").stat().st_mode & 0o777
    assert (202, "created") == (made.status_code, state)


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def test_the_servers_of_the_tests_are_readable(compose):
    done = compose("compose.test.yaml", env={})

    assert 0 == done.returncode, done.stderr
    assert {"postgres", "rabbitmq", "redis"} == set(
        yaml.safe_load(done.stdout)["services"]
    )


@pytest.mark.parametrize("secret", SECRETS)
def test_without_a_secret_nothing_is_started(compose, secret):
    rest = {name: value for name, value in SECRETS.items() if name != secret}

    done = compose("compose.yaml", env=rest)

    assert 0 != done.returncode
    assert secret in done.stderr


def test_what_is_set_in_the_files_is_a_setting():
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    named = {
        name
        for file in FILES
        for name in re.findall(rf"\b{PREFIX}[A-Z_]+\b", (ROOT / file).read_text())
    }

    assert {"BACKBURNER_STORE", "BACKBURNER_TRANSPORT"} < named
    assert set() == named - known


def test_the_image_has_every_transport_in_the_versions_that_are_tested():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    wanted = {
        re.split(r"[^\w-]", line)[0]
        for name, lines in extras.items()
        for line in lines
        if name not in {"bench", "lambda"}  # of the project, and of Lambda functions
    }
    shipped, tested = (the_versions_in(kind) for kind in ("image", "dev"))

    assert wanted <= set(shipped)
    assert {} == {
        name: (version, tested.get(name))
        for name, version in shipped.items()
        if version != tested.get(name)
    }


def the_versions_in(kind):
    text = (ROOT / f"requirements-{kind}.lock").read_text()
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))


def test_the_image_runs_as_nobody_in_particular_and_takes_signals_itself():
    *_, last = (ROOT / "Dockerfile").read_text().split("\nFROM ")
    said = dict(re.findall(r"^(USER|ENTRYPOINT|CMD) (.*)$", last, re.MULTILINE))

    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", said["USER"])
    assert ["backburner"] == json.loads(said["ENTRYPOINT"])
    assert ["serve"] == json.loads(said["CMD"])
    assert "HEALTHCHECK" in last
    assert "pip install" not in last, "what builds stays in the first stage"


def test_what_the_image_is_built_from_is_there_and_not_ignored():
    text = (ROOT / "Dockerfile").read_text()
    copied = {
        name
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)
        for name in line.split()
    }
    ignored = (ROOT / ".dockerignore").read_text().splitlines()

    assert all((ROOT / name).exists() for name in copied)
    assert copied == {line[1:] for line in ignored if line.startswith("!")}
