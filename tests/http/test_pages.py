"""Static pages of applications: what is served, as what, and what is not."""

import asyncio
from urllib.parse import urlsplit

import pytest

from backburner import Backburner, ConfigurationError, Settings
from backburner.http import static

SCRIPT = "alert('hello')"


@pytest.fixture
def folder(tmp_path):
    pages = tmp_path / "pages"
    (pages / "sub").mkdir(parents=True)
    pages.joinpath("index.html").write_text("<h1>Home</h1>")
    pages.joinpath("app.js").write_text(SCRIPT)
    pages.joinpath("data.unknown").write_bytes(b"<script>")
    pages.joinpath(".hidden").write_text("not for you")
    pages.joinpath("sub", "index.html").write_text("<h1>Below</h1>")
    tmp_path.joinpath("secret.txt").write_text("outside")
    return pages


@pytest.fixture
async def server(serve, folder):
    return await serve(works=False, app_routes=static.routes("songs", folder))


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("", "<h1>Home</h1>", "text/html; charset=utf-8"),
        ("index.html", "<h1>Home</h1>", "text/html; charset=utf-8"),
        ("app.js", SCRIPT, "text/javascript; charset=utf-8"),
        ("sub/", "<h1>Below</h1>", "text/html; charset=utf-8"),
    ],
)
async def test_a_file_is_served_by_its_type(server, path, content, kind):
    answered = await server.client.get(f"/apps/songs/{path}")

    assert (200, content) == (answered.status_code, answered.text)
    assert kind == answered.headers["content-type"]
    assert "nosniff" == answered.headers["x-content-type-options"]
    policy = answered.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; ")
    assert "; connect-src 'self'; " in policy
    assert "unsafe" not in policy


async def test_pages_may_connect_to_this_server_and_to_named_origins(serve, folder):
    routes = static.routes("songs", folder, ["https://bucket.example"])
    server = await serve(works=False, app_routes=routes)
    answered = await server.client.get("/apps/songs/")

    policy = answered.headers["content-security-policy"]
    assert "; connect-src 'self' https://bucket.example; " in policy


@pytest.mark.parametrize("is_folder", [True, False])
async def test_uploads_go_to_the_object_store_if_there_is_one(
    tmp_path, s3_url, s3_endpoint, is_folder
):
    place = f"file://{tmp_path}/blobs" if is_folder else s3_url
    settings = Settings(store=f"sqlite:///{tmp_path}/jobs.db", blobs=place)
    async with Backburner(settings) as backburner:
        found = await backburner.upload_origins()

    assert ([] if is_folder else [s3_endpoint.rstrip("/")]) == found


async def test_a_file_of_no_known_type_is_not_shown(server):
    answered = await server.client.get("/apps/songs/data.unknown")

    assert "application/octet-stream" == answered.headers["content-type"]
    assert "attachment" == answered.headers["content-disposition"]


async def test_what_a_browser_has_is_not_sent_again(server):
    first = await server.client.get("/apps/songs/app.js")
    etag = first.headers["etag"]
    again = await server.client.get(
        "/apps/songs/app.js", headers={"If-None-Match": f'"other", W/{etag}'}
    )
    other = await server.client.get(
        "/apps/songs/app.js", headers={"If-None-Match": '"other"'}
    )
    head = await server.client.head("/apps/songs/app.js")

    assert "no-cache" == first.headers["cache-control"]
    assert (304, b"", etag) == (again.status_code, again.content, again.headers["etag"])
    assert "content-security-policy" in again.headers
    assert SCRIPT == other.text
    assert (200, b"", etag) == (head.status_code, head.content, head.headers["etag"])


async def test_the_name_alone_leads_to_where_relative_links_work(server):
    answered = await server.client.get("/apps/songs")

    assert 308 == answered.status_code
    assert "/apps/songs/" == answered.headers["location"]


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "..%2fsecret.txt",
        "%2e%2e/secret.txt",
        "sub/../../secret.txt",
        "sub/..%2f..%2fsecret.txt",
        "..%5csecret.txt",
        "/secret.txt",
        "%2fetc%2fpasswd",
        ".hidden",
        "sub",
        "none.html",
        "index.html%00.js",
    ],
)
async def test_no_path_leads_out_of_the_folder(server, path):
    answered = await asked_as_it_is(server.url, f"/apps/songs/{path}")

    assert answered.startswith(b"HTTP/1.1 404 ")
    assert b"outside" not in answered


async def asked_as_it_is(url, path):
    """Ask for a path that a client would tidy up."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    )
    answered = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answered


def test_a_link_out_of_the_folder_refuses_the_start(folder):
    folder.joinpath("link.txt").symlink_to(folder.parent / "secret.txt")

    with pytest.raises(ConfigurationError, match="is a link out of its folder"):
        static.routes("songs", folder)


@pytest.mark.parametrize(
    ("name", "found", "told"),
    [
        ("my songs", ".", "its name must be"),
        ("songs/../docs", ".", "its name must be"),
        ("songs", "none", "no folder"),
        ("songs", "index.html", "no folder"),
    ],
)
def test_pages_that_cannot_be_served_refuse_the_start(folder, name, found, told):
    with pytest.raises(ConfigurationError, match=told):
        static.routes(name, folder / found)


def test_pages_that_are_no_folder_refuse_the_start(folder):
    with pytest.raises(ConfigurationError, match="`pages` is a str, not a folder"):
        static.routes("songs", str(folder))


def test_too_many_pages_refuse_the_start(folder, monkeypatch):
    monkeypatch.setattr(static, "MOST_FILES", 3)

    with pytest.raises(ConfigurationError, match="more than 3 files"):
        static.routes("songs", folder)
