"""A PostgreSQL server that takes encrypted connections only, reached by its URL."""

import asyncio
import os
import shutil
import signal
import subprocess

import asyncpg
import pytest

from backburner.clock import SystemClock
from backburner.domain.errors import ConfigurationError
from backburner.ports.faults import NoFaults
from backburner.ports.notifier import Notification
from backburner.ports.store.workers import Vitals, WorkerInfo
from backburner.stores.postgres.store import PostgresStore
from backburner.testing.samples import NOON, a_new_job

HBA = "hostssl all all 127.0.0.1/32 trust\n"
TLS = """
ssl = on
ssl_cert_file = 'server.crt'
ssl_key_file = 'server.key'
"""
SESSIONS = """
SELECT application_name, bool_and(ssl)
  FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
 WHERE application_name LIKE 'backburner%' GROUP BY 1
"""
EVERY = {"backburner", "backburner-notifier", "backburner-heart"}


def openssl(folder, *words):
    command = [shutil.which("openssl") or pytest.fail("openssl is missing"), *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def make_authority(folder, name):
    """Make a certificate that signs others."""
    openssl(
        folder,
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.crt"),
    )
    return folder / f"{name}.crt"


def certify(folder, authority):
    """Make the server's certificate, for 127.0.0.1 and no other name."""
    openssl(
        folder,
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=postgres"),
        *("-keyout", "server.key", "-out", "server.csr"),
    )
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl(
        folder,
        *("x509", "-req", "-in", "server.csr", "-days", "2", "-extfile", "san"),
        *("-CA", f"{authority}.crt", "-CAkey", f"{authority}.key", "-CAcreateserial"),
        *("-out", "server.crt"),
    )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("trusted", "foreign"):
        make_authority(folder, name)
    certify(folder, "trusted")
    return folder


@pytest.fixture(scope="module")
def server(own_postgres, certificates):
    """Have the server refuse whatever is not encrypted."""
    cluster = own_postgres._run.data / "postgres" / "cluster"
    owner = cluster.stat()
    for name in ("server.crt", "server.key"):
        target = cluster / name
        target.write_bytes((certificates / name).read_bytes())
        target.chmod(0o600)
        os.chown(target, owner.st_uid, owner.st_gid)
    (cluster / "pg_hba.conf").write_text(HBA)
    with (cluster / "postgresql.conf").open("a") as settings:
        settings.write(TLS)
    own_postgres._process.popen.send_signal(signal.SIGHUP)
    return own_postgres.url


@pytest.fixture
async def url_with(server, certificates, eventually):
    """Write the server's URL with parameters, once it has read its settings."""

    async def is_closed():
        try:
            await (await asyncpg.connect(f"{server}?sslmode=disable")).close()
        except asyncpg.InvalidAuthorizationSpecificationError:
            return True
        return False

    await eventually(is_closed)
    return lambda words: f"{server}?{words.format(folder=certificates)}"


def a_store(url):
    return PostgresStore.from_url(url, SystemClock(), NoFaults())


async def open_and_close(url):
    store = a_store(url)
    try:
        await store.open()
    finally:
        await store.close()


VITALS = Vitals(0, 0, None)


async def beat(store):
    worker = WorkerInfo("w", "here", 1, 1, ("default",), NOON)
    await store.enlist(worker)
    heart = store.heart()
    try:
        return await asyncio.to_thread(heart.beat, "w", VITALS), await sessions(store)
    finally:
        await asyncio.to_thread(heart.close)
        await store.dismiss("w")


async def sessions(store):
    return {name: is_safe for name, is_safe in await store._rows(SESSIONS)}  # noqa: C416


@pytest.mark.parametrize(
    "words",
    [
        "",
        "sslmode=require",
        "ssl=require",
        "ssl=true",
        "sslmode=verify-ca&sslrootcert={folder}/trusted.crt",
        "sslmode=verify-full&sslrootcert={folder}/trusted.crt",
        "ssl=verify-full&sslrootcert={folder}/trusted.crt&application_name=mine",
    ],
)
async def test_pool_pipes_notifier_and_heart_are_encrypted(url_with, words):
    store, heard = a_store(url_with(words)), asyncio.Event()
    await store.open()
    notifier, other = store.notifier(), store.notifier()
    other.listen(lambda _: heard.set())
    notifier.open()
    other.open()
    try:
        await store.submit([a_new_job()])
        async with asyncio.timeout(60):
            await heard.wait()  # connected
            heard.clear()
            notifier.notify(Notification.WORK)
            await heard.wait()
        is_alive, found = await beat(store)
    finally:
        notifier.close()
        other.close()
        await store.close()

    assert is_alive
    assert dict.fromkeys(EVERY, True) == found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("sslmode=disable", "no encryption"),
        ("ssl=off", "no encryption"),
        ("sslmode=verify-full&sslrootcert={folder}/foreign.crt", "CERTIFICATE_VERIFY"),
        ("sslmode=verify-ca&sslrootcert={folder}/none.crt", "none.crt"),
        ("sslmode=verify-full", "root.crt"),
        ("sslmode=always", "sslmode"),
    ],
)
async def test_one_that_may_not_come_in_is_told_why(url_with, words, told, monkeypatch):
    monkeypatch.setenv("HOME", "/nonexistent")
    with pytest.raises(ConfigurationError) as refused:
        await open_and_close(url_with(words))

    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("mode", "is_taken"), [("verify-ca", True), ("verify-full", False)]
)
async def test_the_servers_name_counts_if_that_is_asked_for(url_with, mode, is_taken):
    words = f"sslmode={mode}&sslrootcert={{folder}}/trusted.crt"
    url = url_with(words).replace("127.0.0.1", "localhost")
    if is_taken:
        await open_and_close(url)
        return
    with pytest.raises(ConfigurationError, match="localhost"):
        await open_and_close(url)


def test_a_parameter_that_the_driver_does_not_know_is_named():
    with pytest.raises(ConfigurationError, match="'channel_binding' is not supported"):
        a_store("postgresql://u@h/d?channel_binding=require")
