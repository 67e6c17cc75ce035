"""
The AI service: runs capabilities by name, and answers directly or by a callback.

A request with a callback is a flow of two jobs, capability and callback. The callback
runs after success and failure of the capability; retrying it calls no model.
"""

from collections.abc import Iterator

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from backburner import App, ModelUse, Need, ServiceUrl, Setup, lazy
from backburner_apps.ai.answers import QUEUE
from backburner_apps.ai.callback import callback
from backburner_apps.ai.parsing import parse_task
from backburner_apps.ai.requests import read_message


class AiSettings(BaseSettings):
    """The address of the Tasks service, which need not be public."""

    model_config = SettingsConfigDict(frozen=True, populate_by_name=True)

    tasks_service_base_url: ServiceUrl = Field(
        "", validation_alias="TASKS_SERVICE_BASE_URL"
    )
    """
    URL at which the AI service calls the Tasks service back. Default: the address that
    this process serves on. Example: `https://tasks.example.com`.
    """


def _needs(setup: Setup) -> Iterator[Need]:
    yield Need(("webhook_secret",), "to sign callbacks")
    if "tasks" not in setup.served:
        yield Need(("tasks_service_base_url", "webhook_allow"), "to allow callbacks")


app = App(
    "ai",
    capabilities=[parse_task],
    own=[callback],
    serves=lazy("backburner_apps.ai.routes:serves"),
    messages={QUEUE: read_message},
    models=[ModelUse("chat")],
    worker_log={
        "starting": "Starting capability worker",
        "failed": "Worker failed to start, AI service startup aborted",
        "stopping": "Shutting down worker gracefully",
        "stopped": "Worker shutdown complete",
    },
    needs=_needs,
    settings=AiSettings,
    reaches=lambda settings, _address: [settings.tasks_service_base_url],
)
