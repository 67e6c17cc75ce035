"""
URLs that S3 is given: signed by s3v4 for one method, one object and one size.

moto does not check signatures, so they are computed here a second time, by `botocore`
from the request as a client would send it.
"""

from datetime import timedelta
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import httpx2
import pytest
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from backburner import Backburner, BlobMismatch, BlobMissing, Settings

SIGNATURE = "X-Amz-Signature"
HELLO = b"hello"


@pytest.fixture
async def bb(store_url, s3_url):
    async with Backburner(Settings(store=store_url, blobs=s3_url)) as opened:
        yield opened


@pytest.fixture
def songs(bb):
    return bb.blobs("songs")


@pytest.fixture
def credentials(s3_url):
    parts = urlsplit(s3_url)
    return Credentials(parts.username, parts.password)


class Recomputed(S3SigV4QueryAuth):
    """Signs a request as it is, at the time that its URL says."""

    def signature_of(self, method, url, headers):
        parts = urlsplit(url)
        query = [(k, v) for k, v in parse_qsl(parts.query) if k != SIGNATURE]
        asked = AWSRequest(
            method, parts._replace(query=urlencode(query, quote_via=quote)).geturl()
        )
        signed = dict(query)["X-Amz-SignedHeaders"].split(";")
        sent = {"host": parts.netloc, **{k.lower(): v for k, v in headers.items()}}
        for name in signed:
            asked.headers[name] = sent.get(name, "")
        asked.context["timestamp"] = dict(query)["X-Amz-Date"]
        asked.context["payload_signing_enabled"] = False
        canonical = self.canonical_request(asked)
        return self.signature(self.string_to_sign(asked, canonical), asked)


def holds(credentials, method, url, **headers):
    """Say what S3 would: whether a URL's signature is that of the request."""
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    by = Recomputed(credentials, "s3", "us-east-1", expires=0)
    signature = dict(parse_qsl(urlsplit(url).query))[SIGNATURE]
    return signature == by.signature_of(method, url, told)


async def test_a_put_is_signed_for_one_method_object_and_size(songs, credentials):
    put = await songs.upload_url(size=5, content_type="text/plain")
    kind = {"content_type": "text/plain"}
    other = put.url.replace(put.upload, "upload_other")
    longer = put.url.replace("X-Amz-Expires=900", "X-Amz-Expires=90000")

    assert holds(credentials, "PUT", put.url, content_length="5", **kind)
    assert not holds(credentials, "PUT", put.url, content_length="6", **kind)
    assert not holds(credentials, "PUT", put.url, content_length="5")
    assert not holds(credentials, "GET", put.url, content_length="5", **kind)
    assert not holds(credentials, "PUT", other, content_length="5", **kind)
    assert longer != put.url
    assert not holds(credentials, "PUT", longer, content_length="5", **kind)
    assert {"Content-Type": "text/plain"} == put.headers


async def test_a_get_is_signed_for_one_method_and_object(songs, credentials):
    blob = await songs.write(HELLO, name='a "b".txt', content_type="text/plain")
    get = await songs.download_url(blob.id, span=timedelta(minutes=1))
    other = get.url.replace(blob.id, "blob_other")
    shown = get.url.replace("attachment", "inline")

    assert holds(credentials, "GET", get.url)
    assert not holds(credentials, "PUT", get.url)
    assert not holds(credentials, "GET", other)
    assert shown != get.url
    assert not holds(credentials, "GET", shown)
    assert "60" == dict(parse_qsl(urlsplit(get.url).query))["X-Amz-Expires"]


async def test_clients_send_and_read_without_this_server(songs):
    put = await songs.upload_url(size=5)
    async with httpx2.AsyncClient(trust_env=False) as client:
        sent = await client.put(put.url, content=HELLO, headers=put.headers)
        blob = await songs.confirm(put.upload, name="a.txt", size=5)
        read = await client.get((await songs.download_url(blob.id)).url)

    assert (200, 200) == (sent.status_code, read.status_code)
    assert HELLO == read.content
    assert {} == put.headers


async def test_what_came_in_another_size_is_refused_and_deleted(songs):
    put = await songs.upload_url(size=5)
    async with httpx2.AsyncClient(trust_env=False) as client:
        await client.put(put.url, content=b"hello!")

    with pytest.raises(BlobMismatch):
        await songs.confirm(put.upload, size=5)
    with pytest.raises(BlobMissing):
        await songs.confirm(put.upload)


async def test_an_upload_of_unknown_size_comes_to_our_own_route(songs):
    put = await songs.upload_url(max_size=5)

    assert put.url.startswith("/v1/files/upload_")
