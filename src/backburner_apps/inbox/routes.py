"""The routes of the inbox: Telegram's webhook, and replies of a server without bot."""

import hashlib
import hmac
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from structlog.contextvars import bind_contextvars

from backburner import Backburner, Owner, Transaction
from backburner.web import (
    Caller,
    Refusal,
    Route,
    answer,
    log,
    read,
    request_id_of,
    require,
    routes_of,
    time,
)
from backburner_apps.inbox import book, chat_commands, metrics, notifying
from backburner_apps.inbox.effects import QUEUE
from backburner_apps.inbox.settings import InboxSettings
from backburner_apps.inbox.shapes import (
    Message,
    TelegramMessage,
    TelegramUser,
    Update,
    Voice,
)
from backburner_apps.inbox.texts import Voice as Speaker
from backburner_apps.inbox.texts import language_of
from backburner_apps.inbox.work import DUPLICATE, message_ended, parse_message

Anybody = Annotated[Caller, require("public")]
Reader = Annotated[Caller, require("jobs:read")]

HEADER: Final = "x-telegram-bot-api-secret-token"
PATH: Final = "/telegram/webhook"
SHOWN: Final = 50
CREATE: Final = "create-new"
COMMAND: Final = "command"


@asynccontextmanager
async def serves(backburner: Backburner) -> AsyncIterator[Sequence[BaseRoute]]:
    """Yield the routes over an open `Backburner`."""
    service = Service(backburner)
    summary = "Receive an update from Telegram"
    webhook = Route("POST", PATH, service.webhook, summary, Update)
    summary = "List the replies of a server without a bot"
    outbox = Route("GET", "/inbox/outbox", service.outbox, summary)
    yield routes_of("inbox", [webhook, outbox])


class _Written(NamedTuple):
    """A message from a user to the bot."""

    message: TelegramMessage
    sender: TelegramUser
    owner: Owner
    correlation_id: str

    def key(self, purpose: str) -> str:
        """Return the idempotency key of the message."""
        voice = self.message.voice
        content = self.message.text or (voice.file_unique_id if voice else "")
        fields = [purpose, content, self.message.chat.id, self.message.message_id]
        return hashlib.sha256(orjson.dumps(fields)).hexdigest()


class Service:
    """Handles the requests of the routes."""

    def __init__(self, backburner: Backburner) -> None:
        self._backburner = backburner
        self._settings = backburner.settings_of(InboxSettings)

    async def webhook(self, request: Request, _caller: Anybody) -> Response:
        """Store and queue a message, and answer immediately; ignore other updates."""
        self._check_secret(request)
        update = await read(request, Update)
        correlation_id = request_id_of(request)
        bind_contextvars(correlationId=correlation_id)
        written = self._written(update, correlation_id)
        if written is None:
            log.info("Update ignored")
            return answer({"ok": True})
        command = chat_commands.command_of(written.message.text or "")
        if command is None:
            queue = QUEUE
            is_new = await self._backburner.transact(self._take, written)
        else:
            queue = notifying.QUEUE
            is_new = await self._backburner.transact(self._obey, written, command)
        if not is_new:
            metrics.hits.labels(queue).inc()
            log.info("Update was received before", code=DUPLICATE, queue=queue)
        return answer({"ok": True})

    async def outbox(self, caller: Reader) -> Response:
        """Return the newest replies; 404 with a bot, which sends them to Telegram."""
        if self._settings.token:
            raise Refusal(404, "NOT_FOUND", "replies are sent to Telegram")
        # Without API keys, in development, all replies of the tenant are shown.
        user = None if caller.grant is None else getattr(caller.visible, "user", None)
        tenant = self._settings.tenant if caller.grant is None else caller.owner.tenant
        rows = await self._backburner.read(book.replies, tenant, user, SHOWN)
        return answer({"items": [_reply(row) for row in rows]})

    def _check_secret(self, request: Request) -> None:
        secret = self._settings.secret.encode()
        given = request.headers.get(HEADER, "").encode()
        if secret and not hmac.compare_digest(secret, given):
            raise Refusal(
                401,
                "WEBHOOK_SECRET_INVALID",
                "X-Telegram-Bot-Api-Secret-Token is missing or wrong",
            )

    def _written(self, update: Update, correlation_id: str) -> _Written | None:
        """Return the message of an update, or `None` if the bot ignores it."""
        message = update.message
        if message is None or message.sender is None or message.sender.is_bot:
            return None
        if not (message.text or "").strip() and message.voice is None:
            return None
        owner = Owner(self._settings.tenant, f"telegram:{message.sender.id}")
        return _Written(message, message.sender, owner, correlation_id)

    def _take(self, tx: Transaction, written: _Written) -> bool:
        """Submit the job of a message; return `False` for a repeated message."""
        settings, message = self._settings, written.message
        job = Message(
            user_id=written.owner.user,
            text=message.text or "",
            telegram_message_id=message.message_id,
            telegram_chat_id=message.chat.id,
            correlation_id=written.correlation_id,
            idempotency_key=written.key(CREATE),
            voice=None
            if message.voice is None
            else Voice(
                file_id=message.voice.file_id, mime_type=message.voice.mime_type
            ),
        )
        keep = timedelta(days=settings.keep_days) // timedelta(milliseconds=1)
        book.forget_records(tx, tx.now() - keep)
        key = book.Key(QUEUE, job.idempotency_key)
        is_new = book.open_record(tx, written.owner, key, written.correlation_id)
        book.keep_user(tx, written.owner, written.sender, written.correlation_id)
        if is_new:
            until = tx.now() / 1000 + settings.deadline_seconds
            tx.submit(
                parse_message,
                job.plain(),
                owner=written.owner,
                request_id=written.correlation_id,
                deadline=datetime.fromtimestamp(until, UTC),
                completion={
                    "capability": message_ended,
                    "input": {"message": job.plain()},
                },
            )
        return is_new

    def _obey(
        self, tx: Transaction, written: _Written, command: chat_commands.Command
    ) -> bool:
        """Run a command and queue the answer; return `False` for a repeated message."""
        settings, owner = self._settings, written.owner
        key = book.Key(notifying.QUEUE, written.key(COMMAND))
        correlation_id = written.correlation_id
        payload = {"command": command.name}
        is_new = book.open_record(tx, owner, key, correlation_id, book.SUCCESS, payload)
        book.keep_user(tx, owner, written.sender, correlation_id)
        if is_new:
            language = language_of(written.sender.language_code)
            speaker = Speaker(language, settings.parse_mode)
            reply = notifying.Notification(
                chat_id=written.message.chat.id,
                text=chat_commands.run(tx, owner, command, speaker),
                parse_mode=settings.parse_mode,
                correlation_id=correlation_id,
            )
            notifying.queue(tx, owner, reply)
        return is_new


def _reply(row: Any) -> dict[str, Any]:
    return {
        "chatId": row.chat_id,
        "text": row.text,
        "parseMode": row.parse_mode,
        "correlationId": row.correlation_id,
        "createdAt": time(row.created_at),
    }
