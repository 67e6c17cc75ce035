"""Finds what installed packages offer: adapters by a URL's scheme, and applications."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from backburner.app import App
from backburner.blobs.copying import copy
from backburner.clock import SystemClock, SystemDice
from backburner.domain.errors import BrokerUnavailable, ConfigurationError
from backburner.ports.ai import Access, Models, Provider
from backburner.ports.blobs import BlobStore
from backburner.ports.broker import Broker
from backburner.ports.faults import Faults, NoFaults
from backburner.settings import Settings

FOLDER = ".backburner-blobs"
NO_BROKER = "database"


def find_store(url: str, clock: SystemClock, faults: Faults) -> Any:
    """Return the store for a URL."""
    return _by_scheme("store", url, "STORE").from_url(url, clock, faults)


def find_broker(url: str) -> Broker | None:
    """Return the broker for a URL; `database` means none."""
    if url == NO_BROKER:
        return None
    broker: Broker = _by_scheme("broker", url, "TRANSPORT", NO_BROKER).from_url(url)
    return broker


def find_blobs(settings: Settings, dice: SystemDice, faults: Faults) -> BlobStore:
    """Return the store for large contents that is set, or the one beside the jobs."""
    url = blobs_url(settings)
    found = _by_scheme("blob store", url, "BLOBS")
    blobs: BlobStore = found.from_url(url, dice, faults)
    return blobs


_GROUPS = {
    "store": "backburner.stores",
    "broker": "backburner.brokers",
    "blob store": "backburner.blobs",
}


def _by_scheme(kind: str, url: str, setting: str, *others: str) -> Any:
    """Return the class whose entry point has the name of a URL's scheme."""
    scheme, found = url.partition(":")[0], entry_points(group=_GROUPS[kind])
    if scheme not in found.names:
        known = ", ".join(sorted({*others, *found.names}))
        raise ConfigurationError(
            f"BACKBURNER_{setting}: no {kind} for {scheme!r} URLs; there is: {known}"
        )
    return found[scheme].load()


@asynccontextmanager
async def open_broker(url: str) -> AsyncIterator[Broker | None]:
    """Open the broker for a URL; nothing runs beside."""
    broker = find_broker(url)
    if broker is None:
        yield None
        return
    try:
        await broker.open()
        yield broker
    except BrokerUnavailable as error:
        raise unreachable(url, error) from error
    finally:
        await broker.close()


def unreachable(url: str, error: BrokerUnavailable) -> ConfigurationError:
    """Say where no broker answers and why, without what proves who asks."""
    parts = urlsplit(url)
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    why = str(error).replace(parts.netloc.rpartition("@")[0] or "@", "…")
    return ConfigurationError(
        f"BACKBURNER_TRANSPORT: no broker answers at {place}: {why}"
    )


def blobs_url(settings: Settings) -> str:
    """Say where large contents are, whether anybody named it or not."""
    return settings.blobs or _beside(settings.store)


def carry_blobs(ours: Settings, theirs: Settings) -> int:
    """Copy large contents that are not there yet; return how many there are."""
    dice, faults = SystemDice(), NoFaults()
    source, target = find_blobs(ours, dice, faults), find_blobs(theirs, dice, faults)
    return copy(source, target, now=SystemClock().now())


def _beside(store: str) -> str:
    """Name the folder for large contents if nobody does."""
    scheme, _, rest = store.partition(":///")
    name = f"{rest.partition('?')[0]}-blobs" if scheme == "sqlite" else FOLDER
    return Path(name).absolute().as_uri()


def find_providers(settings: Settings, clock: SystemClock) -> Sequence[Provider]:
    """Return the providers of models that are chosen: each is an entry point."""
    found = entry_points(group="backburner.ai")
    access = Access(
        Models(
            settings.ai_model,
            settings.ai_embedding_model,
            settings.ai_transcription_model,
            settings.ai_vision_model or settings.ai_model,
        ),
        settings.openai_api_key.get_secret_value(),
        settings.openai_base_url,
    )
    unknown = [name for name in settings.ai if name not in found.names]
    if unknown:
        known = ", ".join(sorted(found.names))
        raise ConfigurationError(
            f"BACKBURNER_AI: no provider is called {unknown[0]!r}; there is: {known}"
        )
    try:
        return [found[name].load().from_access(access, clock) for name in settings.ai]
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"BACKBURNER_AI: {error}; a provider is installed as 'backburner[NAME]'"
        ) from None


def find_apps() -> list[App]:
    """Return the applications that installed packages offer."""
    return [found.load() for found in entry_points(group="backburner.apps")]
