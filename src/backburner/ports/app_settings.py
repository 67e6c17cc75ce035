"""The settings of the applications that a process runs, found by their model."""

from collections.abc import Iterable
from typing import TypeVar

from backburner.domain.errors import ConfigurationError

S = TypeVar("S")


class AppSettings:
    """Settings that were read and validated when the process started."""

    def __init__(self, settings: Iterable[object] = ()) -> None:
        self._by_model = {type(found): found for found in settings}

    def of(self, model: type[S]) -> S:
        """Return the settings of this model, which an application here must declare."""
        found = self._by_model.get(model)
        if not isinstance(found, model):
            raise ConfigurationError(
                f"no application here has the settings {model.__name__}: declare them "
                f"with App(settings={model.__name__})"
            )
        return found
