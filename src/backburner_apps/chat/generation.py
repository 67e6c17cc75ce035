"""
Turns a request of a route or a chat platform into one flow.

`submit_generation` works within the caller's transaction. A request, its flow and the
caller's other writes therefore exist together or not at all, and if two servers get the
same request at the same time, only one of them submits a flow.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import uuid4

import orjson
import sqlalchemy as sa

from backburner import CallerError, Flow, Owner, SubmitGroupOptions, Transaction
from backburner.tables import insert
from backburner_apps.chat import personalities, rows
from backburner_apps.chat.prompt import part_of
from backburner_apps.chat.settings import ChatSettings
from backburner_apps.chat.shapes import GenerateRequest
from backburner_apps.chat.tables import requests, windows
from backburner_apps.chat.work import Asked, Fetch, describe, generate, transcribe

MINUTE: Final = 60_000
READERS: Final = {"audio": transcribe, "image": describe}
"""The capability that reads each kind of attachment."""

r, w = requests.c, windows.c


class Generation(NamedTuple):
    """A request with its flow."""

    request_id: str
    flow_id: str
    job_id: str
    """The job that writes the reply."""
    is_new: bool = True
    """Whether it was submitted now and not by an earlier, identical request."""
    reply: Mapping[str, Any] | None = None
    """The stored reply of an earlier request."""


class DuplicateRequest(CallerError):
    """The same request was made within the last `duplicate_seconds`."""

    code = "DUPLICATE_REQUEST"

    def __init__(self, request_id: str | None) -> None:
        super().__init__("Duplicate request")
        self.request_id = request_id


class TooManyRequests(CallerError):
    """The user has reached the maximum number of requests per minute."""

    code = "USER_LIMIT"

    def __init__(self, limit: int, retry_after: int) -> None:
        super().__init__(f"a user may make at most {limit} requests per minute")
        self.retry_after = retry_after


def submit_generation(  # noqa: PLR0913 - options of the request
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
    Submit the flow of a request when this transaction commits.

    The flow uses the memories of `owner`. `completion` is submitted when the job that
    writes the reply ends, successfully or not. `deadline` applies to the whole flow.
    Attachments are fetched only from `hosts`. `options` are further options of the
    flow, such as `request_id`.

    If the `requestId` was used before, returns the earlier request. Raises
    `DuplicateRequest` within `duplicate_seconds` of the earlier one,
    `PersonalityNotFound`, and `TooManyRequests`.
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
    """Return a request's flow: a step for each attachment, then one for the reply."""
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
    """Remove the attachments' contents, which may be large and are in other steps."""
    bare = [
        attachment.model_copy(update={"data_url": None, "url": "about:attachment"})
        for attachment in asked.attachments
    ]
    return asked.model_copy(update={"attachments": bare})


def _key(owner: Owner, asked: GenerateRequest) -> dict[str, str]:
    """Return the key that identifies repeats: the request's id or its body's hash."""
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
    """Return the earlier identical request; raise if it is a moment old."""
    mine = [r[name] == value for name, value in key.items()]
    since = tx.now() - round(settings.duplicate_seconds * 1000)
    if asked.request_id is None:
        # Without an id, an identical body after the window is a new request.
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
    """Count a user's request; raise `TooManyRequests` above the limit per minute."""
    if not limit:
        return
    now = tx.now()
    minute = now // MINUTE
    new = insert(tx.connection, windows).values(
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
