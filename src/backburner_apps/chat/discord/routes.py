"""
`POST /discord/interactions`, which Discord calls when a user gives a command.

Discord shows an error if it gets no answer within three seconds. The route therefore
stores the flow that writes the reply, in one transaction, and answers with a deferral.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from backburner import Backburner, BudgetExhausted, Owner, Transaction
from backburner.web import (
    Caller,
    Refusal,
    answer,
    checked,
    documented,
    log,
    parse,
    read_bytes,
    request_id_of,
    require,
)
from backburner_apps.chat import memories, personalities
from backburner_apps.chat.discord import attachments, book, commands
from backburner_apps.chat.discord import interaction as wire
from backburner_apps.chat.discord.interaction import Interaction, Ping
from backburner_apps.chat.discord.replying import (
    EVERY,
    Followed,
    show_draft,
    show_reply,
)
from backburner_apps.chat.discord.signature import (
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    Verifier,
    is_fresh,
)
from backburner_apps.chat.generation import (
    DuplicateRequest,
    Generation,
    TooManyRequests,
    submit_generation,
)
from backburner_apps.chat.personalities import Personality
from backburner_apps.chat.settings import ChatSettings
from backburner_apps.chat.shapes import Attachment, GenerateRequest

Anybody = Annotated[Caller, require("public")]
PATH: Final = "/discord/interactions"
MAX_BODY: Final = 256 * 1024
DEADLINE: Final = timedelta(minutes=14)
"""An interaction's token is valid for 15 minutes: one is left for the apology."""
MAX_LISTED: Final = 10
UNKNOWN_TYPE: Final = "application/octet-stream"

_REQUEST: TypeAdapter[Ping | Interaction] = TypeAdapter(wire.Request)


def routes(backburner: Backburner) -> Sequence[BaseRoute]:
    """Return the route over an open `Backburner`."""
    settings = backburner.settings_of(ChatSettings)
    router = APIRouter(tags=["discord"])
    router.add_api_route(
        PATH,
        Interactions(backburner, Verifier(settings.discord_public_key)).receive,
        methods=["POST"],
        summary="Receive an interaction from Discord",
        operation_id="discord_interactions",
        responses=documented(),
    )
    return router.routes


class _UserError(Exception):
    """Rolls a transaction back and shows its message to the user."""


class Interactions:
    """Handles Discord's requests."""

    def __init__(self, backburner: Backburner, verifier: Verifier) -> None:
        self._backburner = backburner
        self._settings = backburner.settings_of(ChatSettings)
        self._verifier = verifier

    async def receive(self, request: Request, _caller: Anybody) -> Response:
        """Verify a call and answer it within Discord's three seconds."""
        content = await read_bytes(request, MAX_BODY)
        self._verify(request, content)
        asked = checked(_REQUEST, parse(content))
        if isinstance(asked, Ping):
            return answer(wire.PONG)
        if asked.application_id != self._settings.discord_application_id:
            raise Refusal(
                400, "INVALID_INPUT", "application_id: not the application served here"
            )
        request_id = request_id_of(request)
        try:
            body = await self._backburner.transact(
                lambda tx: self._run(tx, asked, request_id)
            )
        except _UserError as error:
            body = wire.private(str(error))
        return answer(body)

    def _verify(self, request: Request, body: bytes) -> None:
        signature = request.headers.get(SIGNATURE_HEADER, "")
        timestamp = request.headers.get(TIMESTAMP_HEADER, "")
        is_ours = self._verifier.accepts(signature, timestamp, body)
        if not is_ours or not is_fresh(timestamp, self._backburner.engine.now()):
            log.warning("Discord interaction refused", code="INVALID_SIGNATURE")
            raise Refusal(401, "INVALID_SIGNATURE", "invalid request signature")

    def _run(
        self, tx: Transaction, asked: Interaction, request_id: str | None
    ) -> dict[str, Any]:
        """Run a command; return the answer or raise `_UserError`."""
        if not asked.user_id:
            raise _UserError("❌ Discord did not say who you are.")
        owner = Owner(self._settings.discord_tenant, f"discord:{asked.user_id}")
        if asked.data.name not in {commands.CHAT, commands.FORGET}:
            raise _UserError("❌ This command is not known here.")
        personality = _personality(tx, owner.tenant, asked)
        if asked.data.name == commands.FORGET:
            memories.forget(tx, owner, personality.id)
            book.forget(tx, owner)
            return wire.private(f"{personality.name} has forgotten what you said.")
        wanted = self._wanted(tx, owner, personality, asked)
        if book.add(tx, owner, asked, wanted.user_message):
            made = self._submit(tx, owner, wanted, asked.id, request_id)
            follow = Followed(interaction=asked.id, job=made.job_id)
            tx.submit(show_draft, follow, owner=owner, delay=EVERY)
        return wire.DEFERRED

    def _wanted(
        self,
        tx: Transaction,
        owner: Owner,
        personality: Personality,
        asked: Interaction,
    ) -> GenerateRequest:
        """Return the request for a reply that a command makes."""
        try:
            return GenerateRequest(
                request_id=f"discord-{asked.id}",
                personality_id=personality.id,
                channel_id=asked.channel_id,
                guild_id=asked.guild_id,
                user_id=owner.user,
                user_message=asked.data.text(commands.MESSAGE),
                conversation_history=book.history(tx, owner.tenant, asked.channel_id),
                attachments=_attachments(asked),
            )
        except ValidationError:
            raise _UserError(
                "❌ Write a message of at most 6,000 characters."
            ) from None

    def _submit(
        self,
        tx: Transaction,
        owner: Owner,
        wanted: GenerateRequest,
        interaction_id: str,
        request_id: str | None,
    ) -> Generation:
        now = datetime.fromtimestamp(tx.now() / 1000, UTC)
        try:
            return submit_generation(
                tx,
                owner,
                wanted,
                self._settings,
                completion={
                    "capability": show_reply,
                    "input": {"interaction": interaction_id},
                },
                deadline=now + DEADLINE,
                hosts=attachments.HOSTS,
                options={"request_id": request_id},
            )
        except TooManyRequests as error:
            raise _UserError(
                f"❌ You have asked very often. Try again in {error.retry_after} s."
            ) from None
        except BudgetExhausted:
            raise _UserError("❌ Your budget is used up. Try again later.") from None
        except DuplicateRequest:
            raise _UserError("❌ This was asked a moment ago.") from None


def _personality(tx: Transaction, tenant: str, asked: Interaction) -> Personality:
    """Return the personality that a command names by its id or name."""
    name = asked.data.text(commands.PERSONALITY)
    known = personalities.listed(tx, tenant)
    for personality in known:
        if name in {personality.id, personality.name}:
            return personality
    for personality in known:
        if name.casefold() == personality.name.casefold():
            return personality
    names = ", ".join(f"`{personality.name}`" for personality in known[:MAX_LISTED])
    raise _UserError(
        f"❌ There is no such personality. Try: {names or 'none is there yet'}"
    )


def _attachments(asked: Interaction) -> list[Attachment]:
    given = asked.data.attachment
    if given is None:
        return []
    refusal = attachments.refusal(given)
    if refusal is not None:
        raise _UserError(refusal)
    name = "".join(letter for letter in given.filename[:200] if letter.isprintable())
    return [
        Attachment(
            url=given.url,
            content_type=given.content_type or UNKNOWN_TYPE,
            name=name or None,
            size=given.size,
        )
    ]
