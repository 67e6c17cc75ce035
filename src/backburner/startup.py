"""
Checks before the start that all settings needed by a process are set.

`serve` and `worker` refuse to start if `problems` finds any; `doctor` reports them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from pydantic import SecretStr
from pydantic_settings import BaseSettings

from backburner.ai import presets
from backburner.app import App, Setup
from backburner.domain.ai import Purpose
from backburner.domain.errors import ConfigurationError
from backburner.domain.webhooks.address import Reach
from backburner.environment import variable
from backburner.ports.app_settings import AppSettings
from backburner.settings import Settings, read_settings

_OF_KEYED: Final[Mapping[str, str]] = {
    "key_pepper": "set it and create a key with `backburner keys create`, or use --dev "
    "to serve only this machine",
    "webhook_secret": "a server with API keys signs webhooks with it; set at "
    "least 32 characters",
}


def read_apps(apps: Iterable[App], given: Iterable[BaseSettings] = ()) -> AppSettings:
    """
    Return the settings of applications: the given ones, otherwise from the environment.

    Raises `ConfigurationError`, in one line, that names every invalid value.
    """
    chosen = {type(settings): settings for settings in given}
    wrong: dict[str, None] = {}
    for app in apps:
        if app.settings is not None and app.settings not in chosen:
            try:
                chosen[app.settings] = read_settings(app.settings)
            except ConfigurationError as error:
                wrong[f"{error} (application {app.name!r})"] = None
    if wrong:
        raise ConfigurationError("; ".join(wrong))
    return AppSettings(chosen.values())


def reach_of(
    settings: Settings,
    apps: Iterable[App],
    app_settings: AppSettings,
    address: str = "",
) -> Reach:
    """Return where webhooks may go, including what these applications allow."""
    places: list[str] = []
    for app in apps:
        if app.reaches is not None:
            read = None if app.settings is None else app_settings.of(app.settings)
            places += app.reaches(read, "" if app.serves is None else address)
    return settings.reach_with(places)


def check(settings: Settings, apps: Sequence[App], setup: Setup) -> None:
    """Raise `ConfigurationError`, in one line, if a setting is missing or invalid."""
    found = problems(settings, apps, setup, read_apps(apps))
    if found:
        raise ConfigurationError("; ".join(found))


def problems(
    settings: Settings, apps: Sequence[App], setup: Setup, own: AppSettings
) -> list[str]:
    """Return a sentence for each missing setting, beginning with its variable."""
    found: dict[str, str] = {}
    for name, sentence in _missing(settings, apps, setup, own):
        found.setdefault(name, sentence)
    return [f"{name}{sentence}" for name, sentence in found.items()]


def signing_warning(
    settings: Settings, apps: Sequence[App], *, serves: bool, is_keyed: bool
) -> str | None:
    """
    Return a warning if other processes will refuse the signatures of this one.

    A server with API keys signs for its callers and may be one of several. A worker
    signs only the URLs of applications' blobs. A server without keys serves only its
    own machine and accepts its own signatures.
    """
    signs_for_others = is_keyed or (apps and not serves)
    if settings.link_secrets or not signs_for_others:
        return None
    return (
        f"{variable('link_secret', Settings)} is not set: other processes refuse the "
        "signed URLs, stream tokens and sessions of this one, which expire with it; "
        "set the same secret of at least 32 characters for every server and worker"
    )


def _missing(
    settings: Settings, apps: Sequence[App], setup: Setup, app_settings: AppSettings
) -> Iterator[tuple[str, str]]:
    if setup.is_keyed:
        for name, sentence in _OF_KEYED.items():
            if not _is_set(settings, name):
                yield variable(name, Settings), f" is not set: {sentence}"
    for app in apps:
        if setup.works or app.name in setup.served:
            yield from _of_app(settings, app, setup, app_settings)


def _of_app(
    settings: Settings, app: App, setup: Setup, app_settings: AppSettings
) -> Iterator[tuple[str, str]]:
    for use in app.models:
        if use.is_required:
            yield from _of_purpose(settings, app, use.purpose)
    for need in () if app.needs is None else app.needs(setup):
        places = [
            (_place(settings, app, app_settings, name), name) for name in need.settings
        ]
        if not any(_is_set(place, name) for place, name in places):
            first, *others = [variable(name, type(place)) for place, name in places]
            either = "".join(f" (or {name})" for name in others)
            sentence = f"{either} is not set: application {app.name!r} needs it"
            yield first, f"{sentence} {need.why}"


def _of_purpose(
    settings: Settings, app: App, purpose: Purpose
) -> Iterator[tuple[str, str]]:
    """Yield why a purpose has no model provider, if it has none."""
    special = getattr(settings, presets.SETTINGS[purpose])
    chosen = presets.chain(special, settings.ai, purpose)
    openai = presets.Credentials(settings.openai_api_key.get_secret_value())
    if any(presets.is_usable(choice.name, openai) for choice in chosen):
        return
    needs = f" is not set: application {app.name!r} needs"
    if chosen:
        name = chosen[0].name
        sentence = f"{needs} the provider {name!r} for the purpose {purpose!r}"
        yield presets.PRESETS[name].key_variable, sentence
        return
    # Other providers are configured, but none has models for this purpose.
    setting = presets.SETTINGS[purpose] if settings.ai else "ai"
    sentence = f"{needs} a model provider for the purpose {purpose!r}"
    yield variable(setting, Settings), f"{sentence} (openai, or mock to try it out)"


def _place(
    settings: Settings, app: App, app_settings: AppSettings, name: str
) -> BaseSettings:
    """Return the settings that have a field: the application's own come first."""
    if app.settings is not None and name in app.settings.model_fields:
        return app_settings.of(app.settings)
    return settings


def _is_set(settings: BaseSettings, name: str) -> bool:
    value = getattr(settings, name)
    return bool(value.get_secret_value() if isinstance(value, SecretStr) else value)
