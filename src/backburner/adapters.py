"""Finds what installed packages offer: adapters by URL scheme, and applications."""

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from backburner.ai import presets
from backburner.app import App
from backburner.blobs.copying import copy
from backburner.clock import SystemClock, SystemDice
from backburner.domain.ai import Purpose
from backburner.domain.errors import BrokerUnavailable, ConfigurationError
from backburner.environment import entry_points_of
from backburner.ports.ai import Access, Models, Provider
from backburner.ports.blobs import BlobStore
from backburner.ports.broker import Broker
from backburner.ports.clock import Clock
from backburner.ports.faults import Faults, NoFaults
from backburner.ports.log import log
from backburner.settings import Settings, variable

_EXTRA = re.compile(r"(?P<name>[\w.-]+).*;.*\bextra *== *['\"](?P<extra>[\w.-]+)['\"]")
FOLDER = ".backburner-blobs"
NO_BROKER = "database"
MOCK = "mock"


def find_store(url: str, clock: Clock, faults: Faults) -> Any:
    """Return the store for a URL."""
    return _by_scheme("store", url, "STORE").from_url(url, clock, faults)


def find_broker(url: str) -> Broker | None:
    """Return the broker for a URL; `database` means none."""
    if url == NO_BROKER:
        return None
    broker: Broker = _by_scheme("broker", url, "TRANSPORT", NO_BROKER).from_url(url)
    return broker


def find_blobs(settings: Settings, dice: SystemDice, faults: Faults) -> BlobStore:
    """Return the configured blob store, or the default one next to the database."""
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
    if kind == "store" and "://" not in url:
        raise ConfigurationError(
            f"BACKBURNER_{setting}: {url!r} is not a URL: write sqlite:///{url} or "
            "postgresql://user:password@host/name"
        )
    scheme, found = url.partition(":")[0], entry_points_of(_GROUPS[kind])
    if scheme not in found.names:
        known = ", ".join(sorted({*others, *found.names}))
        raise ConfigurationError(
            f"BACKBURNER_{setting}: no {kind} for {scheme!r} URLs; known: {known}"
        )
    return _load(found[scheme], f"BACKBURNER_{setting}: {scheme!r}")


class MissingPackage(ConfigurationError):
    """A package of an optional dependency is not installed."""


def _load(entry: EntryPoint, user: str) -> Any:
    """Load an entry point; the error for a missing package says what to install."""
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        package = _package_with(missing, entry)
        if package is None:
            raise
        raise MissingPackage(
            f"{user} needs the Python package {missing!r}, "
            f'which is not installed: pip install "{package}"'
        ) from None


def _package_with(module: str, entry: EntryPoint) -> str | None:
    """Return the extra of the entry point's package that installs a module."""
    if entry.dist is None:
        return None
    for requirement in entry.dist.requires or ():
        found = _EXTRA.match(requirement)
        if found and found["name"].replace("-", "_") == module:
            return f"{entry.dist.name}[{found['extra']}]"
    return None


@asynccontextmanager
async def open_broker(url: str) -> AsyncIterator[Broker | None]:
    """Open the broker for a URL without starting anything else."""
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
    """Return the error for an unreachable broker, without credentials."""
    parts = urlsplit(url)
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    why = str(error).replace(parts.netloc.rpartition("@")[0] or "@", "…")
    return ConfigurationError(
        f"BACKBURNER_TRANSPORT: no broker answers at {place}: {why}"
    )


def blobs_url(settings: Settings) -> str:
    """Return the URL of the blob store, by default derived from the store's."""
    return settings.blobs or _beside(settings.store)


def carry_blobs(ours: Settings, theirs: Settings) -> int:
    """Copy blobs that the target lacks; return the number of blobs."""
    dice, faults = SystemDice(), NoFaults()
    source, target = find_blobs(ours, dice, faults), find_blobs(theirs, dice, faults)
    return copy(source, target, now=SystemClock().now())


def _beside(store: str) -> str:
    """Return the default folder of blobs for a store's URL."""
    scheme, _, rest = store.partition(":///")
    name = f"{rest.partition('?')[0]}-blobs" if scheme == "sqlite" else FOLDER
    beside_link = Path(name).absolute()
    if scheme != "sqlite" or beside_link.exists():
        return beside_link.as_uri()
    file = Path(rest.partition("?")[0]).resolve()
    return file.with_name(f"{file.name}-blobs").as_uri()


def find_providers(
    settings: Settings, clock: Clock
) -> Mapping[Purpose, Sequence[Provider]]:
    """Return the configured model providers of each purpose, in order of preference."""
    made: dict[tuple[str, Models], Provider] = {}
    if any(":" in name for name in settings.ai):
        raise ConfigurationError(
            "BACKBURNER_AI: a model belongs to a purpose: name it in BACKBURNER_AI_TEXT"
        )
    return {
        purpose: [
            made.get(key)
            or made.setdefault(key, _provider(settings, *key, setting, clock))
            for key, setting in _chain(settings, purpose)
        ]
        for purpose in presets.PURPOSES
    }


def is_chosen(settings: Settings, purpose: Purpose, chain: Sequence[Provider]) -> bool:
    """
    Say whether a provider was configured for a purpose.

    The mock that is set for all purposes does not count.
    """
    is_named = bool(getattr(settings, presets.SETTINGS[purpose]))
    return is_named or any(provider.name != MOCK for provider in chain)


def find_provider(settings: Settings, name: str, clock: Clock) -> Provider:
    """Return a model provider by name, with its own models."""
    choice = presets.Choice(name, "")
    models = _models(settings, choice, "chat", is_first=False)
    return _provider(settings, name, models, "ModelUse(fallback=…)", clock)


def _chain(
    settings: Settings, purpose: Purpose
) -> Iterator[tuple[tuple[str, Models], str]]:
    """Yield names and models of a purpose's providers, and the setting of each."""
    special = getattr(settings, presets.SETTINGS[purpose])
    setting = variable(presets.SETTINGS[purpose] if special else "ai")
    nick = presets.SETTINGS[purpose].removeprefix("ai_")
    chosen = presets.chain(special, settings.ai, purpose)
    for place, choice in enumerate(chosen):
        if not presets.serves(choice.name, purpose):
            can = sorted(presets.purposes_of(choice.name))
            names = ", ".join(presets.SETTINGS[p].removeprefix("ai_") for p in can)
            raise ConfigurationError(
                f"{setting}: {choice.name!r} has no models for {nick}, only for {names}"
            )
        if purpose != "chat" and not presets.is_usable(
            choice.name, _of_openai(settings)
        ):
            # Only its users need the key: `startup.py` knows them.
            log.warning("provider has no key", provider=choice.name)
            continue
        models = _models(settings, choice, purpose, is_first=place == 0)
        if getattr(models, purpose):
            yield (choice.name, models), setting
        elif special or purpose == "chat":
            raise ConfigurationError(
                f"{setting}: {choice.name!r} has no model of its own for {nick}: "
                f"write {choice.name}:MODEL in {variable(presets.SETTINGS[purpose])}"
            )


def _models(
    settings: Settings, choice: presets.Choice, purpose: Purpose, *, is_first: bool
) -> Models:
    """Return a provider's models: as named, as set for the first one, or its own."""
    set_here = Models(
        settings.ai_model,
        settings.ai_embedding_model,
        settings.ai_transcription_model,
        settings.ai_vision_model or settings.ai_model,
    )
    preset = presets.PRESETS.get(choice.name)
    models = set_here
    if preset is not None and preset is not presets.OPENAI:
        names = ("ai_model", "ai_embedding_model", "ai_transcription_model")
        was_set = [is_first and name in settings.model_fields_set for name in names]
        was_set.append(is_first and bool(settings.ai_vision_model))
        triples = zip(was_set, set_here, preset.models, strict=True)
        models = Models(*(ours if is_set else own for is_set, ours, own in triples))
    return models._replace(**{purpose: choice.model}) if choice.model else models


def _of_openai(settings: Settings) -> presets.Credentials:
    key = settings.openai_api_key.get_secret_value()
    return presets.Credentials(key, settings.openai_base_url)


def _provider(
    settings: Settings, name: str, models: Models, setting: str, clock: Clock
) -> Provider:
    """Create a provider from a preset or an entry point."""
    found = entry_points_of("backburner.ai")
    preset = presets.PRESETS.get(name)
    if preset is None and name not in found.names:
        known = ", ".join(sorted({*found.names, *presets.PRESETS}))
        raise ConfigurationError(
            f"{setting}: no provider is named {name!r}; installed: {known}"
        )
    provider: Provider
    if preset is None:
        access = Access(models, *_of_openai(settings))
        provider = _load(found[name], f"{setting}: {name!r}").from_access(access, clock)
    else:
        access = Access(models, *presets.credentials(preset, _of_openai(settings)))
        provider = _load(found["openai"], f"{setting}: {name!r}")(access, preset)
    return provider


def installed_apps() -> list[str]:
    """Return the names of the applications that installed packages offer."""
    return sorted(entry_points_of("backburner.apps").names)


def load_app(name: str) -> App:
    """Load an installed application by its name."""
    entry = entry_points_of("backburner.apps")[name]
    found: App = _load(entry, f"application {name!r}")
    return found
