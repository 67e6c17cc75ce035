"""The offline models as providers of the AI layer: they embed, and nothing else."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

from backburner import read_settings
from backburner.providers import (
    Access,
    Chat,
    Clock,
    Fault,
    Hear,
    Media,
    Models,
    Reply,
    Tokens,
    Trouble,
    Vector,
)
from backburner_apps.documents.embedding.folder import (
    NAMES,
    Kind,
    cache_folder,
    damaged,
    folder_of,
    is_prepared,
)
from backburner_apps.documents.settings import DocumentsSettings


class Loaded:
    """The models that this process has loaded, each once; any thread may run them."""

    def __init__(self) -> None:
        self._models: dict[Path, Any] = {}
        self._lock = threading.Lock()

    def embed(self, folder: Path, texts: Sequence[str]) -> Any:
        """Embed texts by the model of a folder, which is loaded at the first call."""
        with self._lock:
            if folder not in self._models:
                self._models[folder] = _load(folder)
        # Not locked: a question would wait for all texts of the files before it.
        return self._models[folder].embed(texts)


LOADED = Loaded()


def _load(folder: Path) -> Any:
    wrong = damaged(folder)
    if wrong:
        raise Fault(
            Trouble.NOT_PREPARED,
            f"files of the model in {folder} are damaged ({', '.join(wrong)}): delete "
            "that folder and run `backburner documents prepare`",
        )
    # What does not embed needs neither the model nor what runs it.
    from backburner_apps.documents.embedding.runtime import load  # noqa: PLC0415

    return load(folder)


class MiniLM:
    """A `Provider` that runs MiniLM on this machine."""

    kind: ClassVar[Kind] = "minilm"
    credential: str | None = None
    is_paced = False

    def __init__(self, cache: Path, kind: Kind) -> None:
        """Take the folder of prepared models."""
        self.name: str = kind
        self.models = Models("", NAMES[kind], "", "")
        self._kind: Kind = kind
        self._cache = cache

    @classmethod
    def from_access(cls, access: Access, clock: Clock) -> Self:
        """Make one; it needs no key, and its model is its own."""
        del access, clock
        settings = read_settings(DocumentsSettings)
        kind: Kind = "minilm-light" if settings.light else cls.kind
        return cls(cache_folder(settings.models), kind)

    async def embed(self, texts: Sequence[str], model: str) -> Reply[Sequence[Vector]]:
        """Return a vector for each text; raise `NOT_PREPARED` without the model."""
        if not is_prepared(self._kind, self._cache):
            raise Fault(
                Trouble.NOT_PREPARED,
                f"the offline model {NAMES[self._kind]} is not prepared: run "
                "`backburner documents prepare`",
            )
        if not texts:
            return Reply([], model, Tokens())
        folder = folder_of(self._kind, self._cache)
        found = await asyncio.to_thread(LOADED.embed, folder, [*texts])
        return Reply(found.vectors.tolist(), model, Tokens(found.tokens))

    async def chat(self, chat: Chat, hear: Hear | None = None) -> Reply[str]:
        del chat, hear
        self._refuse()

    async def transcribe(self, audio: Media, model: str) -> Reply[str]:
        del audio, model
        self._refuse()

    async def describe(self, image: Media, prompt: str, model: str) -> Reply[str]:
        del image, prompt, model
        self._refuse()

    async def close(self) -> None:
        """Keep the model: another `Backburner` of this process may use it."""

    def _refuse(self) -> NoReturn:
        raise Fault(Trouble.REJECTED, "this model only embeds texts")


class MiniLMLight(MiniLM):
    """A `Provider` that looks up words in the table that was made of MiniLM."""

    kind: ClassVar[Kind] = "minilm-light"
