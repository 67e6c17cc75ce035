"""
Reads settings models from the environment, and describes errors in one line.

It does not know particular settings: `settings.py` has the platform's, and an
application brings its own. Values of secrets are never part of a message.
"""

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, AliasChoices, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsError

from backburner.domain.errors import ConfigurationError, reason

S = TypeVar("S", bound=BaseSettings)
_OF_NUMBERS: Final = frozenset(
    {
        *("int_parsing", "float_parsing", "bool_parsing"),
        *("greater_than", "greater_than_equal", "less_than", "less_than_equal"),
    }
)
"""Errors of Pydantic whose message does not say which value is wrong."""
LONGEST_SHOWN: Final = 100
_PROOF: Final = re.compile(
    r"//\S*@|//[^\s:/@]*:(?!\d*(?:[/?\s,;'\")]|$))[^\n@]*@", re.MULTILINE
)
"""The credentials in a URL, also if they contain `@`, `/` or a space."""
_PASSWORD: Final = re.compile(
    r"([?&][\w-]*(?:password|secret|token|key)[\w-]*="
    r"|(?<![\w-])(?:[\w-]*(?:passw(?:or)?d|pwd|secret|credential|signature)|pass|sig)="
    r")[^&\s]+",
    re.IGNORECASE,
)
"""The credentials in the parameters of a URL, or in `name=value`."""


def entry_points_of(group: str) -> EntryPoints:
    """Return the entry points of a group in installed packages."""
    found: EntryPoints = installed_entry_points().select(group=group)
    return found


@cache
def installed_entry_points() -> Any:
    """
    Return all entry points of installed packages.

    Read once, because it reads every package; packages installed later are not seen.
    """
    return entry_points()


def read_model(model: type[S], given: Mapping[str, Any]) -> S:
    """Read a model; `given` takes precedence over the environment."""
    try:
        return model(**given)
    except ValidationError as error:
        secrets = list(_raw_secrets(model, given))
        problem = "; ".join(_told(model, found, secrets) for found in error.errors())
    except SettingsError as error:
        # Its message names the field; its cause may quote the value.
        field = re.search(r'field "(\w+)"', str(error))
        name = variable(field[1], model) if field else model.__name__
        problem = f"{name}: must be JSON"
    except Exception as error:  # noqa: BLE001 - a validator may raise anything
        problem = f"{model.__name__}: a validator raised {type(error).__name__}"
    raise ConfigurationError(" ".join(problem.split()))


def _told(model: type[BaseSettings], error: Any, secrets: Sequence[str]) -> str:
    """Describe an error as `NAME: problem`, without the values of secrets."""
    problem = _censored(reason(error), secrets)
    if not error["loc"]:
        return f"{model.__name__}: {problem}"
    name = str(error["loc"][0])  # the rest is a position in a list
    field = model.model_fields.get(name)
    if field is None:
        return f"{name}: {problem}"
    given = ""
    if error["type"] in _OF_NUMBERS:
        value = _censored(_shown(error["input"], _is_secret(field)), secrets)
        given = f", not {value!r}"
    return f"{variable(name, model)}: {problem}{given}"


def _censored(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "…")
    return text


def _raw_secrets(model: type[BaseSettings], given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values of secret fields as they were set, the longest first."""
    names = [name for name, field in model.model_fields.items() if _is_secret(field)]
    found = [given.get(name) or os.environ.get(variable(name, model)) for name in names]
    raw = {getattr(value, "get_secret_value", lambda v=value: v)() for value in found}
    yield from sorted((str(value) for value in raw if value), key=len, reverse=True)


def _is_secret(field: FieldInfo) -> bool:
    return "Secret" in repr(field.annotation)


def refuse_unknown(
    prefix: str, known: frozenset[str], besides: Callable[[], tuple[str, ...]]
) -> None:
    """Refuse an unknown variable with this prefix; `besides` returns exceptions."""
    names = sorted(
        name for name in os.environ if name.startswith(prefix) and name not in known
    )
    others = besides() if names else ()
    for name in names:
        if not name.startswith(others):
            # Without the prefix, which would make all names similar.
            ends = {other.removeprefix(prefix): other for other in known}
            near = difflib.get_close_matches(name.removeprefix(prefix), ends, n=1)
            hint = f"; did you mean {ends[near[0]]}?" if near else ""
            raise ConfigurationError(f"{name} is not a setting{hint}")


def variable(name: str, model: type[BaseSettings]) -> str:
    """Return the environment variable of a setting."""
    return alias(model, name) or prefix_of(model) + name.upper()


def variables(model: type[BaseSettings]) -> frozenset[str]:
    """Return the environment variables of a model's settings."""
    return frozenset(variable(name, model) for name in model.model_fields)


def alias(model: type[BaseSettings], name: str) -> str | None:
    """Return the variable that a field declares itself, if it does."""
    field = model.model_fields.get(name)
    named = None if field is None else field.validation_alias
    if isinstance(named, AliasChoices):
        return next((each for each in named.choices if isinstance(each, str)), None)
    return named if isinstance(named, str) else None


def prefix_of(model: type[BaseSettings]) -> str:
    """Return the prefix of the variables of a model."""
    return (model.model_config.get("env_prefix") or "").upper()


def shown(settings: BaseSettings) -> dict[str, str]:
    """Return each variable's value for display: of a secret only whether it is set."""
    model = type(settings)
    return {
        variable(name, model): _shown(getattr(settings, name), _is_secret(field))
        for name, field in model.model_fields.items()
    }


def _shown(value: Any, is_secret: bool) -> str:
    if is_secret:
        raw = getattr(value, "get_secret_value", lambda: value)()
        return "set" if raw else "not set"
    text = ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    return without_passwords(text)[:LONGEST_SHOWN]


def without_passwords(text: str) -> str:
    """Remove credentials from URLs in a text."""
    return _PASSWORD.sub(r"\1…", _PROOF.sub("//…@", text))


def has_place(url: str) -> bool:
    """Return whether a URL names a host, and neither a query nor a fragment."""
    try:
        parts = urlsplit(url)
        is_odd = parts.port == 0 or bool(parts.query or parts.fragment)
    except ValueError:
        return False
    return bool(parts.hostname) and url.isprintable() and " " not in url and not is_odd


def _check_url(value: str) -> str:
    if value and not value.startswith(("http://", "https://")):
        raise ValueError("must begin with http:// or https://")
    if value and not has_place(value):
        raise ValueError("must be a host, optionally with a port and a path")
    return value.rstrip("/")


ServiceUrl = Annotated[str, AfterValidator(_check_url)]
"""The base URL of a service, without a trailing slash; empty: not set."""


def _check_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (KeyError, OSError, ValueError):
        raise ValueError(
            "is not a time zone: use a name such as Europe/Berlin"
        ) from None
    return value


TimeZone = Annotated[str, AfterValidator(_check_zone)]
"""The name of a time zone, such as Europe/Berlin."""
