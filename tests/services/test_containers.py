"""The image and the compose files, as far as they can be judged without an engine."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from backburner.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
FILES = ["Dockerfile", "compose.yaml", "compose.dev.yaml", "compose.test.yaml"]
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
@pytest.mark.parametrize("more", [[], ["compose.dev.yaml"]], ids=["", "development"])
def test_each_profile_is_a_house_on_its_transport(compose, profile, more):
    done = compose("compose.yaml", *more, profile=profile)
    assert 0 == done.returncode, done.stderr
    services = yaml.safe_load(done.stdout)["services"]

    house = {
        name: service
        for name, service in services.items()
        if profile in service.get("profiles", []) and name.startswith(("api", "worker"))
    }
    schemes = {
        service["environment"]["BACKBURNER_TRANSPORT"].partition("://")[0]
        for service in house.values()
    }
    assert 2 == len(house), "an API and workers"
    assert {TRANSPORTS[profile]} == schemes


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
        if name != "bench"
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
