"""
One request becomes one flow, whatever asks for it: a route, or a chat platform.

`submit_generation` decides within the caller's transaction. So a request, its flow and
whatever else the caller writes exist together or not at all, and of the same request
sent to two servers at once one becomes a flow.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import uuid4

import orjson
import sqlalchemy as sa

from backburner import CallerError, Flow, Owner, SubmitGroupOptions, Transaction
from backburner_apps.chat import personalities, rows
from backburner_apps.chat.prompt import part_of
from backburner_apps.chat.settings import ChatSettings
from backburner_apps.chat.shapes import GenerateRequest
from backburner_apps.chat.tables import requests, windows
from backburner_apps.chat.work import Asked, Fetch, describe, generate, transcribe

MINUTE: Final = 60_000
READERS: Final = {"audio": transcribe, "image": describe}
"""By the kind of an attachment, what reads it."""

r, w = requests.c, windows.c


class Generation(NamedTuple):
    """A request that has a flow."""

    request_id: str
    flow_id: str
    job_id: str
    """The job that writes the reply."""
    is_new: bool = True
    """Whether it was submitted now; else the same request was, earlier."""
    reply: Mapping[str, Any] | None = None
    """The reply, if the request was submitted earlier and is answered."""


class DuplicateRequest(CallerError):
    """The same request was made a moment ago."""

    code = "DUPLICATE_REQUEST"

    def __init__(self, request_id: str | None) -> None:
        super().__init__("Duplicate request")
        self.request_id = request_id


class TooManyRequests(CallerError):
    """The user has made as many requests as are allowed in a minute."""

    code = "USER_LIMIT"

    def __init__(self, limit: int, retry_after: int) -> None:
        super().__init__(f"a user may make {limit} requests in a minute")
        self.retry_after = retry_after


def submit_generation(  # noqa: PLR0913 - what a request may have besides
    tx: Transaction,
    owner: Owner,
    asked: GenerateRequest,
    settings: ChatSettings,
    *,
    completion: Mapping[str, Any] | None = None,
    deadline: datetime | None = None,
    hosts: Sequence[str] = (),
    options: SubmitGroupOptions | None = None,
) -> Generation:
    """
    Submit the flow of a request, if this transaction commits.

    `owner` is whose memories are used. `completion` is submitted when the job that
    writes the reply ends, however it does; `deadline` is for the whole flow; `hosts`
    are the only ones that attachments are fetched from. `options` are further ones of
    the flow, such as `request_id`.

    A `requestId` that was used before stands for the earlier request. Raises
    `DuplicateRequest` within `duplicate_seconds` of it, `PersonalityNotFound`, and
    `TooManyRequests`.
    """
    personalities.find(tx, owner.tenant, asked.personality_id)
    key = _key(owner, asked)
    earlier = _earlier(tx, key, asked, settings)
    if earlier is not None:
        return earlier
    _count(tx, owner, settings.user_requests)
    request_id = asked.request_id or uuid4().hex
    flow = flow_of(request_id, asked, completion=completion, hosts=hosts)
    chosen: SubmitGroupOptions = options or {}
    chosen = {**chosen, "owner": owner, "deadline": deadline}
    submitted = tx.submit_flow(flow, **chosen)
    job_id = tx.step_ids(submitted.id)[llm_step(request_id)]
    row = {
        **key,
        "request_id": request_id,
        "flow_id": submitted.id,
        "job_id": job_id,
        "created_at": tx.now(),
    }
    if not rows.add(tx.connection, requests, row):
        raise DuplicateRequest(asked.request_id)  # another process was first
    return Generation(request_id, submitted.id, job_id)


def flow_of(
    request_id: str,
    asked: GenerateRequest,
    *,
    completion: Mapping[str, Any] | None = None,
    hosts: Sequence[str] = (),
) -> Flow:
    """Return a request's flow: a step for each attachment, then the reply's."""
    flow, parts, after = Flow(), [], []
    counts = dict.fromkeys(READERS, 0)
    for attachment in asked.attachments:
        kind = attachment.kind
        if kind not in READERS:
            parts.append(part_of(attachment, None))
            continue
        name = f"{kind}-{request_id}-{counts[kind]}"
        counts[kind] += 1
        fetch = Fetch(attachment=attachment, hosts=[*hosts])
        step = flow.add(READERS[kind], fetch, name=name, tags=[name])
        parts.append(part_of(attachment, name))
        after.append(step.anyway)
    name = llm_step(request_id)
    flow.add(
        generate,
        Asked(request=_without_contents(asked), parts=parts),
        after=after,
        name=name,
        tags=[name],
        completion=completion,
    )
    return flow


def llm_step(request_id: str) -> str:
    """Return the name and tag of the step that writes the reply."""
    return f"llm-{request_id}"


def _without_contents(asked: GenerateRequest) -> GenerateRequest:
    """Leave out what the other steps have: attachments may be large."""
    bare = [
        attachment.model_copy(update={"data_url": None, "url": "about:attachment"})
        for attachment in asked.attachments
    ]
    return asked.model_copy(update={"attachments": bare})


def _key(owner: Owner, asked: GenerateRequest) -> dict[str, str]:
    """Return by what a repeat of a request is known: its id, else its body."""
    if asked.request_id is not None:
        key = f"id:{asked.request_id}"
    else:
        body = orjson.dumps(asked.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)
        key = f"body:{hashlib.sha256(body).hexdigest()}"
    return {"tenant": owner.tenant, "user": owner.user, "key": key}


def _earlier(
    tx: Transaction,
    key: Mapping[str, str],
    asked: GenerateRequest,
    settings: ChatSettings,
) -> Generation | None:
    """Return what the same request became earlier; refuse it within its window."""
    mine = [r[name] == value for name, value in key.items()]
    since = tx.now() - round(settings.duplicate_seconds * 1000)
    if asked.request_id is None:
        # A body is a request of its own each time, but for its window.
        tx.connection.execute(requests.delete().where(*mine, r.created_at <= since))
    fields = r.request_id, r.flow_id, r.job_id, r.created_at, r.reply
    row = tx.connection.execute(sa.select(*fields).where(*mine)).one_or_none()
    if row is None:
        return None
    if row.created_at > since:
        raise DuplicateRequest(asked.request_id)
    return Generation(
        row.request_id, row.flow_id, row.job_id, is_new=False, reply=row.reply
    )


def _count(tx: Transaction, owner: Owner, limit: int) -> None:
    """Count a request of a user, and refuse one too many in a minute."""
    if not limit:
        return
    now = tx.now()
    minute = now // MINUTE
    new = rows.insert(tx.connection, windows).values(
        tenant=owner.tenant, user=owner.user, minute=minute, count=1
    )
    counted = new.on_conflict_do_update(
        index_elements=["tenant", "user"],
        set_={
            "count": sa.case((w.minute == minute, w.count + 1), else_=1),
            "minute": minute,
        },
    ).returning(w.count)
    if tx.connection.execute(counted).scalar_one() > limit:
        raise TooManyRequests(limit, -(-((minute + 1) * MINUTE - now) // 1000))
