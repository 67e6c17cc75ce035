"""Collects what an instance runs: registers the contents of its applications."""

from collections.abc import Iterable
from typing import Any

from backburner.app import App, ReadsMessage, Uploaded
from backburner.domain.ai import Purpose
from backburner.domain.costs.budget import Budget
from backburner.domain.errors import ConfigurationError
from backburner.domain.lanes.lane import Lane
from backburner.domain.queues.queue import Queue
from backburner.engine.maintenance.schedule import Schedule
from backburner.engine.observability.app_metrics import register
from backburner.engine.registry import Capability, Registry
from backburner.ports.app_settings import AppSettings
from backburner.ports.log import allow


def capabilities_of(app: App) -> tuple[Capability[Any, Any], ...]:
    """Return the capabilities of an application, including internal ones."""
    return (*app.capabilities, *app.own)


def _decorated(given: Iterable[Any], place: str = "") -> list[Capability[Any, Any]]:
    """Return capabilities; refuse a function that lacks the decorator."""
    found = [*given]
    for each in found:
        if not isinstance(each, Capability):
            name = getattr(each, "__name__", repr(each))
            raise ConfigurationError(
                f"{place}{name} is a {type(each).__name__}, not a capability: decorate "
                f'an async function with `@capability("{name}")`'
            )
    return found


class Declarations:
    """Capabilities, queues, lanes, schedules and budgets, by what uses them."""

    def __init__(  # noqa: PLR0913 - one list per kind of declaration
        self,
        apps: Iterable[App],
        settings: AppSettings,
        *,
        capabilities: Iterable[Capability[Any, Any]] = (),
        queues: Iterable[Queue] = (),
        schedules: Iterable[Schedule] = (),
        budgets: Iterable[Budget] = (),
        lanes: Iterable[Lane] = (),
    ) -> None:
        """Register the applications with their settings, and the other declarations."""
        self.apps = tuple(apps)
        self.settings = settings
        self.registry = Registry(_decorated(capabilities))
        self.schedules = [*schedules]
        self.budgets = [*budgets]
        self.codes: dict[tuple[str, Purpose], str] = {}
        """By capability and purpose, the error code if no provider is available."""
        self.model_lanes: dict[str, str] = {}
        """By capability, the lane of its application's model calls."""
        self.readers: dict[str, ReadsMessage] = {}
        self.app_of: dict[str, str] = {}
        """By capability, its application."""
        self.unavailable: dict[str, str] = {}
        """Applications whose schema is not the required one, and why."""
        for queue in queues:
            self.registry.limit(queue)
        for lane in lanes:
            self.registry.pace(lane)
        for app in self.apps:
            self._add(app)

    def _add(self, app: App) -> None:
        _decorated(capabilities_of(app), f"application {app.name!r}: ")
        allow(app.name, app.log_keys)
        register(app.name, app.metrics)
        for found in capabilities_of(app):
            self.app_of[found.name] = app.name
            for use in app.models:
                self.codes[found.name, use.purpose] = use.code
        for found in app.capabilities:
            self.registry.add(found)
        for found in app.own:
            self.registry.own(found)
        self.registry.counted_queue = app.counted_queue or self.registry.counted_queue
        settings = self._settings_of(app)
        self._add_model_lane(app)
        for queue in app.queues_for(settings):
            self.registry.limit(queue)
        if app.retries is not None:
            self.registry.retries |= app.retries(settings)
        for lane in app.lanes:
            self.registry.pace(lane)
        self.readers |= app.messages
        self.schedules += app.schedules
        self.budgets += app.budgets

    def _add_model_lane(self, app: App) -> None:
        if app.model_lane is None:
            return
        lane = app.model_lane(self._settings_of(app))
        self.registry.pace(lane)
        for found in capabilities_of(app):
            self.model_lanes[found.name] = lane.name

    def _settings_of(self, app: App) -> Any:
        return None if app.settings is None else self.settings.of(app.settings)

    def queues_of(self, app: App) -> set[str]:
        """Return the queues of an application's jobs."""
        queues = {queue.name for queue in app.queues_for(self._settings_of(app))}
        return queues | {found.queue for found in capabilities_of(app)}

    def upload_hooks(self) -> tuple[Uploaded, ...]:
        """Return the upload hooks of the available applications."""
        return tuple(
            app.uploaded
            for app in self.apps
            if app.uploaded is not None and app.name not in self.unavailable
        )

    def withhold(self, app: App, problem: str) -> None:
        """Make an application unavailable here: other processes run its jobs."""
        self.unavailable[app.name] = problem
        self.registry.withheld |= {found.queue for found in capabilities_of(app)}
