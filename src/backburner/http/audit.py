"""
The audit log: an administrator's action is written before it is executed, or with it.

An action that may be refused, or may be a repeat, gets its entries along, and its
transaction writes them if it changes anything. So the log neither lacks an action nor
has one that did not take place.
"""

from collections.abc import Sequence

from starlette.requests import Request

from backburner.domain.auth.access import READ_TENANT
from backburner.domain.jobs.job import Owner
from backburner.http.auth import Caller, actor_of
from backburner.http.state import server_state_of
from backburner.ports.store.keys import AuditEntry


def entry_of(
    request: Request,
    caller: Caller,
    action: str,
    target: str,
    *,
    tenant: str | None = None,
) -> AuditEntry:
    """Return an audit entry for `tenant`; by default, the caller's current tenant."""
    actor = actor_of(request, caller, tenant)
    now = server_state_of(request).engine.now()
    return AuditEntry(now, actor.tenant, actor.name, action, target, actor.request_id)


async def record(request: Request, caller: Caller, action: str, target: str) -> None:
    """Write an entry before the action, so that no action is missing in the log."""
    entry = entry_of(request, caller, action, target)
    await server_state_of(request).engine.store.record([entry])


async def record_for_other(
    request: Request, caller: Caller, owner: Owner, action: str, target: str
) -> None:
    """Write an entry if the action concerns another owner than the key's own."""
    if owner != caller.own:
        await record(request, caller, action, target)


def entries_of_submit(
    request: Request, caller: Caller, action: str, target: str
) -> Sequence[AuditEntry]:
    """
    Return the entries of a submit: one, if an administrator submits for another owner.

    Not for keys without `tenant:read`: they are those of backends, which submit for
    their users all the time. Each job names its request.
    """
    if READ_TENANT not in caller.scopes or caller.owner == caller.own:
        return ()
    return (entry_of(request, caller, action, target),)
