"""`serve --dev --reload`: a server that follows the files of its application."""

import os
import signal
from pathlib import Path

import httpx2
import pytest

from backburner.cli.reloading import python_files

APP = """\
from backburner import App, Context, capability


@capability("NAME")
async def handler(_ctx: Context, value: str) -> str:
    return value


app = App("words", capabilities=[handler])
"""


def the_app(name):
    return APP.replace("NAME", name)


def the_capabilities_of(url):
    found = httpx2.get(f"{url}/v1/capabilities", trust_env=False).json()["items"]
    return [item["name"] for item in found]


@pytest.fixture
def words(tmp_path):
    file = tmp_path / "words.py"
    file.write_text(the_app("first"))
    return file


@pytest.mark.thorough
@pytest.mark.executed
def test_a_changed_file_restarts_the_server(serve, words):
    server = serve("--reload", BACKBURNER_APPS="words:app")
    first = the_capabilities_of(server.url)

    words.write_text(the_app("other"))
    server.says("'words.py'")
    again = server.says("Backburner is ready at ")
    second = the_capabilities_of(server.url)
    words.write_text("app = (\n")
    server.says("SyntaxError: '(' was never closed")
    words.write_text(the_app("third"))
    server.says("Backburner is ready at ")
    third = the_capabilities_of(server.url)
    code = server.told(signal.SIGTERM).exit_code()

    assert [["first"], ["other"], ["third"]] == [first, second, third]
    assert again.endswith(server.url)
    assert 0 == code
    assert server.is_silent(), "a process of it is left"
    with pytest.raises(httpx2.ConnectError):
        the_capabilities_of(server.url)


@pytest.mark.executed
@pytest.mark.usefixtures("words")
def test_the_server_ends_with_the_process_that_restarts_it(serve):
    server = serve("--reload", BACKBURNER_APPS="words:app")

    code = server.told(signal.SIGKILL).exit_code()

    assert -signal.SIGKILL == code
    assert server.is_silent(), "a process of it is left"


def test_what_is_no_projects_own_is_not_looked_at(tmp_path):
    for name in ("app.py", "of/mine.py", ".git/x.py", "env/lib/x.py", "app.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.py").touch()

    assert {"app.py", "of/mine.py"} == {
        os.fspath(Path(found).relative_to(tmp_path)) for found in python_files(tmp_path)
    }
