"""
The inbox: a message to a Telegram bot becomes tasks.

Telegram's webhook → queue `task-parsing` → a model → tasks, record and notification in
one transaction → queue `notifications` → Telegram. See docs/inbox.md.
"""

from collections.abc import Iterator
from importlib.resources import files

from backburner import App, ModelUse, Need, Setup, lazy
from backburner_apps.inbox import metrics, notifying, work
from backburner_apps.inbox.cli import commands
from backburner_apps.inbox.parsing import NO_AUDIO
from backburner_apps.inbox.settings import InboxSettings


def _needs(setup: Setup) -> Iterator[Need]:
    if setup.is_dev:
        return
    if "inbox" in setup.served:
        why = "to verify that updates come from Telegram"
        yield Need(("telegram_webhook_secret",), why)
    if setup.works:
        yield Need(("telegram_bot_token",), "to answer in Telegram")


app = App(
    "inbox",
    own=[work.parse_message, work.message_ended, notifying.notify],
    serves=lazy("backburner_apps.inbox.routes:serves"),
    models=[
        ModelUse("chat"),
        ModelUse("transcription", is_required=False, code=NO_AUDIO),
    ],
    needs=_needs,
    settings=InboxSettings,
    migrations="backburner_apps.inbox.migrations",
    tables=lazy("backburner_apps.inbox.tables:all_tables"),
    erase=lazy("backburner_apps.inbox.book:erase"),
    commands=commands,
    pages=files("backburner_apps.inbox") / "pages",
    log_keys=[
        "correlationId",
        "errorCode",
        "promptLength",
        "reasonCode",
        "responseLength",
        "source",
        "taskCount",
    ],
    metrics=metrics.EVERY,
)
