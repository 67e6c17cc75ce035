"""
The Tasks service: creates tasks from sentences.

It holds tokens for the user, calls the AI service, and stores the task when the AI
service calls it back. The two services share no tables and communicate only over HTTP.
"""

from collections.abc import Iterator

from backburner import App, Need, Operations, Setup, lazy
from backburner_apps.tasks.settings import TasksSettings

operations = Operations("tasks")
"""Creating a task is counted when the callback arrives, not at the 202."""


def _needs(setup: Setup) -> Iterator[Need]:
    if "tasks" not in setup.served:
        return
    yield Need(("webhook_secret",), "to verify callbacks")
    if "ai" not in setup.served:
        yield Need(("service_base_url",), "to receive callbacks")
        yield Need(("ai_service_base_url",), "to call the AI service")
    if setup.is_keyed:
        yield Need(("api_key",), "to call the AI service")


app = App(
    "tasks",
    serves=lazy("backburner_apps.tasks.service:serves"),
    needs=_needs,
    settings=TasksSettings,
    reaches=lambda settings, address: [settings.service_base_url or address],
    migrations="backburner_apps.tasks.migrations",
    tables=lazy("backburner_apps.tasks.tables:all_tables"),
    erase=lazy("backburner_apps.tasks.book:erase"),
    log_keys=["tasks_request_id"],
    metrics=[*operations],
)
