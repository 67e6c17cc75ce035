"""
`POST /discord/interactions`: what Discord calls when a user gives a command.

Discord shows an error if it gets no answer within three seconds. So the route writes
one transaction, with the flow that makes the reply, and answers that the reply comes
later.
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
"""The token of an interaction is valid for 15 minutes: one is left to say sorry."""
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
        summary="Take an interaction of Discord",
        operation_id="discord_interactions",
        responses=documented(),
    )
    return router.routes


class _Told(Exception):
    """Ends a transaction with something to tell the user."""


class Interactions:
    """Answers Discord."""

    def __init__(self, backburner: Backburner, verifier: Verifier) -> None:
        self._backburner = backburner
        self._settings = backburner.settings_of(ChatSettings)
        self._verifier = verifier

    async def receive(self, request: Request, _caller: Anybody) -> Response:
        """Verify a call and answer it within Discord's three seconds."""
        body = await read_bytes(request, MAX_BODY)
        self._verify(request, body)
        asked = checked(_REQUEST, parse(body))
        if isinstance(asked, Ping):
            return answer(wire.PONG)
        if asked.application_id != self._settings.discord_application_id:
            raise Refusal(
                400, "INVALID_INPUT", "application_id: not the application served here"
            )
        request_id = request_id_of(request)
        try:
            told = await self._backburner.transact(
                lambda tx: self._run(tx, asked, request_id)
            )
        except _Told as told_user:
            told = wire.told(str(told_user))
        return answer(told)

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
        """Carry out a command; `_Told` undoes it and tells the user why."""
        if not asked.user_id:
            raise _Told("❌ Discord did not say who you are.")
        owner = Owner(self._settings.discord_tenant, f"discord:{asked.user_id}")
        if asked.data.name not in {commands.CHAT, commands.FORGET}:
            raise _Told("❌ This command is not known here.")
        personality = _personality(tx, owner.tenant, asked)
        if asked.data.name == commands.FORGET:
            memories.forget(tx, owner, personality.id)
            book.forget(tx, owner)
            return wire.told(f"{personality.name} has forgotten what you said.")
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
        """Return the request that a command stands for."""
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
            raise _Told("❌ Write a message of at most 6,000 characters.") from None

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
            raise _Told(
                f"❌ You have asked very often. Try again in {error.retry_after} s."
            ) from None
        except BudgetExhausted:
            raise _Told("❌ Your budget is used up. Try again later.") from None
        except DuplicateRequest:
            raise _Told("❌ This was asked a moment ago.") from None


def _personality(tx: Transaction, tenant: str, asked: Interaction) -> Personality:
    """Return the personality that a command names by its id or name."""
    named = asked.data.text(commands.PERSONALITY)
    known = personalities.listed(tx, tenant)
    for found in known:
        if named in {found.id, found.name}:
            return found
    for found in known:
        if named.casefold() == found.name.casefold():
            return found
    names = ", ".join(f"`{found.name}`" for found in known[:MAX_LISTED])
    raise _Told(f"❌ There is no such personality. Try: {names or 'none is there yet'}")


def _attachments(asked: Interaction) -> list[Attachment]:
    given = asked.data.attachment
    if given is None:
        return []
    refusal = attachments.refusal(given)
    if refusal is not None:
        raise _Told(refusal)
    name = "".join(letter for letter in given.filename[:200] if letter.isprintable())
    return [
        Attachment(
            url=given.url,
            content_type=given.content_type or UNKNOWN_TYPE,
            name=name or None,
            size=given.size,
        )
    ]
