"""Object stores: what their URLs say, and what they answer when something is wrong."""

import json
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from obstore.store import AzureStore, GCSStore

from backburner.blobs.clouds import AZURE_PUT, AzureBlobs, GoogleBlobs
from backburner.blobs.objects import Address
from backburner.blobs.s3 import OPTIONS, S3Blobs
from backburner.clock import SystemDice
from backburner.domain.blobs.blob import BlobKey
from backburner.domain.errors import ConfigurationError, StoreUnavailable
from backburner.ports.blobs import UrlTerms
from backburner.ports.faults import NoFaults
from backburner.ports.finding import Status

KEY = BlobKey("job_1", "input")
TERMS = UrlTerms(timedelta(minutes=1), size=5)


def s3(url):
    return S3Blobs.from_url(url, SystemDice(), NoFaults())


@pytest.fixture
def lost(s3_url):
    """A store whose bucket does not exist."""
    credentials, _, rest = s3_url.partition("@")
    return s3(f"{credentials}@absent-{rest}")


@pytest.fixture
def service_account():
    """What Google gives a program to sign with; nobody there knows this one."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return json.dumps(
        {
            "type": "service_account",
            "private_key": text.decode(),
            "private_key_id": "1",
            "client_email": "me@example.com",
            "disable_oauth": False,
        }
    )


def test_a_url_says_bucket_prefix_options_and_credentials():
    url = "s3://key%2F1:se%40cret@bucket/some/where?region=eu-central-1"

    assert Address(
        "bucket", "some/where/", {"region": "eu-central-1"}, "key/1", "se@cret"
    ) == Address.read(url, OPTIONS)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("s3:///prefix", "names no bucket"),
        ("s3://bucket?zone=x", "unknown option 'zone'"),
        ("s3://bucket/a/../b", "the prefix has an empty part"),
        ("s3://key:secret@?region=x", "names no bucket"),
    ],
)
def test_a_url_that_means_nothing_is_refused_without_its_secret(url, told):
    with pytest.raises(ConfigurationError, match=told) as refused:
        s3(url)

    assert "secret" not in str(refused.value)


def test_a_bucket_that_is_not_there_is_no_missing_blob(lost):
    for act in (
        lambda: lost.put([(KEY, b"x")]),
        lambda: lost.names("job_1"),
        lambda: lost.jobs(before=1, after=None, limit=1),
        lambda: lost.discard_unfinished(before=1),
    ):
        with pytest.raises(StoreUnavailable):
            act()
    assert [Status.FAIL] == [finding.status for finding in lost.examine()]


@pytest.mark.parametrize("size", [1, 40 * 1024 * 1024])
def test_an_upload_that_the_place_refuses_is_told_and_can_be_aborted(lost, size):
    writer = lost.writer(KEY)

    with pytest.raises(StoreUnavailable):
        write(writer, size)
    writer.abort()


def write(writer, size):
    for _ in range(0, size, 1024 * 1024):
        writer.write(bytes(1024 * 1024))
    writer.finish()


def test_azure_signs_and_says_which_header_a_put_needs():
    store = AzureStore("box", account_name="acc", account_key="c2VjcmV0")
    blobs = AzureBlobs(store, "pre/", "azure")
    put, get = (blobs.sign(method, KEY, TERMS) for method in ("PUT", "GET"))

    place = "https://acc.blob.core.windows.net/box/pre/job_1/input?"
    assert all(signed.url.startswith(place) for signed in (put, get))
    assert put.url != get.url
    assert AZURE_PUT == put.headers
    assert {} == get.headers


def test_google_signs_a_url_for_one_object(service_account):
    store = GCSStore("box", service_account_key=service_account)
    signed = GoogleBlobs(store, "pre/", "google").sign("PUT", KEY, TERMS)

    assert signed.url.startswith("https://storage.googleapis.com/box/pre/job_1/input?")
    assert "X-Goog-Expires=60" in signed.url
