"""The audit log: an administrator's action is written before it is executed."""

from starlette.requests import Request

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
    """Return an entry for the log of `tenant`, or of the tenant that is acted in."""
    actor = actor_of(request, caller, tenant)
    now = server_state_of(request).engine.now()
    return AuditEntry(now, actor.tenant, actor.name, action, target, actor.request_id)


async def record(request: Request, caller: Caller, action: str, target: str) -> None:
    """
    Write in the log what a caller is about to do.

    Before it is done, so that nothing is done without its entry.
    """
    entry = entry_of(request, caller, action, target)
    await server_state_of(request).engine.store.record([entry])
