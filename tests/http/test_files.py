"""Signed URLs of applications' blobs: one method, one object, one size, an expiry."""

import asyncio
import hashlib
from datetime import timedelta
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from backburner import BlobMissing, BlobTooLarge, Owner
from backburner.clock import SystemClock
from backburner.engine.access.signed_urls import SignedUrls
from backburner.http.routes.files import Part, asked_part

OLD, NEW, OTHER = ("a secret of the tests " * 2 + name for name in ("old", "new", "x"))
ANN = Owner("t", "ann")
HELLO = b"hello"


@pytest.fixture
def root(tmp_path):
    return tmp_path / "contents"


@pytest.fixture
async def server(serve, root):
    return await serve(
        works=False,
        keyed=True,
        blobs=root.as_uri(),
        limits={"link_secret": f"{NEW},{OLD}", "blob_limit": 1024 * 1024},
    )


@pytest.fixture
def songs(server):
    return server.backburner.blobs("songs", ANN)


def left_in(root):
    return list(root.glob("*/*"))


def changed(url, **fields):
    """Return a URL with other parameters; `None` takes one away."""
    parts = urlsplit(url)
    told = {name: value[0] for name, value in parse_qs(parts.query).items()} | fields
    query = {name: value for name, value in told.items() if value is not None}
    return f"{parts.path}?{urlencode(query)}"


async def refused(server, method, url, **request):
    answer = await server.client.request(method, url, **request)
    return 403 == answer.status_code and "LINK_REFUSED" == answer.json()["code"]


async def test_a_client_without_a_key_sends_and_reads_a_blob(server, songs, root):
    put = await songs.upload_url(size=5, content_type="text/plain")
    sent = await server.client.put(put.url, content=HELLO, headers=put.headers)
    before = await songs.list()
    blob = await songs.confirm(put.upload, name="é.txt", content_type="text/plain")
    get = await songs.download_url(blob.id)
    read = await server.client.get(get.url)

    assert (200, 200) == (sent.status_code, read.status_code)
    assert {"size": 5, "sha256": hashlib.sha256(HELLO).hexdigest()} == sent.json()
    assert [] == list(before)
    assert HELLO == read.content
    assert "text/plain; charset=utf-8" == read.headers["content-type"]
    assert "filename*=UTF-8''%C3%A9.txt" in read.headers["content-disposition"]
    assert "sandbox" in read.headers["content-security-policy"]
    assert "private, no-store" == read.headers["cache-control"]
    assert [blob.id] == [path.name for path in left_in(root)]


async def test_a_url_is_for_one_method(server, songs):
    put = await songs.upload_url(max_size=5)
    get = await songs.download_url((await songs.write(HELLO)).id)

    for method in ("GET", "POST", "PATCH", "DELETE"):
        assert await refused(server, method, put.url)
    for method in ("PUT", "POST", "PATCH", "DELETE"):
        assert await refused(server, method, get.url)


async def test_a_url_is_for_one_object(server, songs, root):
    put, other = [await songs.upload_url(max_size=5) for _ in range(2)]
    get, mine = [
        await songs.download_url((await songs.write(HELLO)).id) for _ in range(2)
    ]
    swapped = urlsplit(other.url).path + "?" + urlsplit(put.url).query

    assert await refused(server, "PUT", swapped, content=HELLO)
    swapped = urlsplit(mine.url).path + "?" + urlsplit(get.url).query
    assert await refused(server, "GET", swapped)
    assert 2 == len(left_in(root))


@pytest.mark.parametrize("body", [b"hell", b"hello!", b"", b"x" * 100_000])
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_url_is_for_one_size(server, songs, root, body, is_chunked):
    async def chunks():
        for begin in range(0, len(body), 1000):
            yield body[begin : begin + 1000]

    put = await songs.upload_url(size=5)
    sent = chunks() if is_chunked else body

    assert await refused(server, "PUT", put.url, content=sent)
    assert [] == left_in(root)
    with pytest.raises(BlobMissing):
        await songs.confirm(put.upload)


@pytest.mark.parametrize(("size", "is_taken"), [(0, 1), (4, 1), (5, 1), (6, 0)])
async def test_a_url_is_for_at_most_a_size(server, songs, size, is_taken):
    put = await songs.upload_url(max_size=5)
    sent = await server.client.put(put.url, content=bytes(size))

    assert (200 if is_taken else 403) == sent.status_code


async def test_a_refused_body_leaves_what_was_sent_before(server, songs):
    put = await songs.upload_url(size=5)
    await server.client.put(put.url, content=HELLO)
    assert await refused(server, "PUT", put.url, content=b"hell")

    assert 5 == (await songs.confirm(put.upload)).size


@pytest.mark.parametrize(
    "fields",
    [
        {"size": "6"},
        {"size": None},
        {"size": None, "max": "5"},
        {"max": "9"},
        {"type": "text/html"},
        {"exp": "9999999999"},
        {"kid": "00000000"},
        {"sig": "A" * 43},
        {"sig": "é"},
    ],
)
async def test_a_url_whose_terms_were_changed_is_refused(server, songs, fields):
    put = await songs.upload_url(size=5, content_type="text/plain")
    url = changed(put.url, **fields)

    assert await refused(server, "PUT", url, content=HELLO, headers=put.headers)


async def test_a_url_is_for_one_media_type(server, songs):
    put = await songs.upload_url(size=5, content_type="text/plain")
    html = {"Content-Type": "text/html"}

    assert await refused(server, "PUT", put.url, content=HELLO, headers=html)
    assert await refused(server, "PUT", put.url, content=HELLO)


@pytest.mark.parametrize(
    ("secret", "age", "is_taken"),
    [
        (NEW, timedelta(0), True),
        (OLD, timedelta(0), True),
        (OTHER, timedelta(0), False),
        (NEW, timedelta(minutes=2), False),
        (NEW, timedelta(days=-2), False),
    ],
)
async def test_a_url_ends_and_outlives_the_secret_that_replaced_its_own(
    server, songs, secret, age, is_taken
):
    then = SystemClock().now() - age // timedelta(milliseconds=1)
    blob = await songs.write(HELLO)
    signed_urls = SignedUrls([secret], lambda: then)
    url, _ = signed_urls.sign(f"/v1/files/{blob.key.id}", span=timedelta(minutes=1))

    assert is_taken != await refused(server, "GET", url)


@pytest.mark.parametrize(("minutes", "is_taken"), [(0, True), (2, False)])
async def test_a_url_to_send_to_ends(server, songs, root, minutes, is_taken):
    then = SystemClock().now() - minutes * 60_000
    path = urlsplit((await songs.upload_url(size=5)).url).path
    url, _ = SignedUrls([NEW], lambda: then).sign(
        path, span=timedelta(minutes=1), method="PUT", terms={"size": "5"}
    )

    assert is_taken != await refused(server, "PUT", url, content=HELLO)
    assert is_taken == bool(left_in(root))


async def test_a_url_of_what_is_gone_is_404(server, songs):
    blob = await songs.write(HELLO)
    get = await songs.download_url(blob.id)
    await songs.delete(blob.id)

    assert 404 == (await server.client.get(get.url)).status_code


async def test_an_upload_belongs_to_whom_its_url_was_signed_for(server, songs):
    put = await songs.upload_url(size=5)
    await server.client.put(put.url, content=HELLO)

    for app, owner in (("films", ANN), ("songs", Owner("t", "bob"))):
        with pytest.raises(BlobMissing):
            await server.backburner.blobs(app, owner).confirm(put.upload)


async def test_a_client_that_leaves_in_the_middle_leaves_nothing(server, songs, root):
    put = await songs.upload_url(size=500_000)
    parts = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = f"PUT {put.url} HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n"
    writer.write(head.encode() + bytes(300_000))
    await writer.drain()
    await server.until(lambda: 1 == len(left_in(root)))
    writer.close()

    await server.until(lambda: not left_in(root))
    assert b"" == await reader.read()


async def test_more_than_the_operator_allows_is_not_signed(songs):
    with pytest.raises(BlobTooLarge):
        await songs.upload_url(size=1024 * 1024 + 1)


async def test_a_range_is_answered_with_its_part(server, songs):
    get = await songs.download_url((await songs.write(HELLO)).id)
    part = await server.client.get(get.url, headers={"Range": "bytes=1-3"})
    none = await server.client.get(get.url, headers={"Range": "bytes=9-"})
    stale = {"Range": "bytes=1-3", "If-Range": '"another"'}
    whole = await server.client.get(get.url, headers=stale)

    assert (206, b"ell") == (part.status_code, part.content)
    assert "bytes 1-3/5" == part.headers["content-range"]
    assert (416, "bytes */5") == (none.status_code, none.headers["content-range"])
    assert (200, HELLO) == (whole.status_code, whole.content)


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("", Part(0, 5)),
        ("bytes=0-", Part(0, 5)),
        ("bytes=4-9", Part(4, 1)),
        ("bytes=-2", Part(3, 2)),
        ("bytes=-9", Part(0, 5)),
        ("bytes=-0", None),
        ("bytes=5-", None),
        ("bytes=3-2", Part(0, 5)),
        ("bytes=0-1,3-4", Part(0, 5)),
        ("bytes=-", Part(0, 5)),
        ("lines=1-2", Part(0, 5)),
    ],
)
def test_a_range_is_one_of_bytes(header, part):
    assert part == asked_part(header, 5)


async def test_urls_begin_with_the_address_that_is_set(serve, root):
    server = await serve(
        works=False,
        blobs=root.as_uri(),
        limits={"public_url": "https://api.example.com/"},
    )
    put = await server.backburner.blobs("songs").upload_url(max_size=5)

    assert put.url.startswith("https://api.example.com/v1/files/upload_")
