"""Budgets over HTTP: current use, and changes by operators."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from backburner.domain.auth.access import PLATFORM_TENANT
from backburner.domain.costs.balance_history import (
    AccountName,
    BalanceHistory,
    BalanceSample,
    slot_length,
)
from backburner.domain.costs.budget import Budget, BudgetState, Scope, amount, budget_of
from backburner.engine.engine import Engine
from backburner.engine.submit.submission import refused_field
from backburner.http import wire
from backburner.http.audit import entry_of
from backburner.http.auth import Caller, Reader, require
from backburner.http.problems import (
    BudgetNotFound,
    budget_headers,
    documented,
)
from backburner.http.routes import jobs
from backburner.http.schemas.budgets import (
    BudgetHistory,
    BudgetHistoryQuery,
    BudgetList,
    BudgetQuery,
    BudgetRequest,
)
from backburner.http.state import server_state_of
from backburner.ports.store.keys import AuditEntry

router = APIRouter(tags=["budgets"])

ADMIN = "budgets:admin"
Administrator = Annotated[Caller, require(ADMIN)]


@router.get(
    "/v1/budgets",
    operation_id="list_budgets",
    summary="List budgets and their use",
    response_model=BudgetList,
    responses=documented(),
)
async def listing(request: Request, caller: Reader) -> Response:
    """List the budgets that apply to the caller; for operators, all budgets."""
    return wire.answer(await _list(server_state_of(request).engine, caller))


@router.get(
    "/v1/budgets/history",
    operation_id="get_budget_history",
    summary="Show how a budget was used in its current window",
    response_model=BudgetHistory,
    responses=documented(BudgetNotFound),
)
async def history(
    request: Request, caller: Reader, query: Annotated[BudgetHistoryQuery, Query()]
) -> Response:
    """
    Return at most 48 samples of the current window, and the state now.

    A caller sees the history of the budgets that the list shows them. Windows shorter
    than ten minutes have no samples.
    """
    name = AccountName(query.scope, query.of, query.unit, query.per_seconds * 1000)
    viewer = () if ADMIN in caller.scopes else (caller.owner, caller.key)
    found = await server_state_of(request).engine.budgets.history(name, *viewer)
    if found is None:
        raise BudgetNotFound(
            "the budget does not exist or has no current window: see GET /v1/budgets"
        )
    return wire.answer(_history(found))


@router.put(
    "/v1/budgets",
    operation_id="set_budget",
    summary="Set a budget",
    response_model=BudgetList,
    response_description="The budgets.",
    responses=documented(body=True, writes=True),
    openapi_extra={"requestBody": jobs.json_body("BudgetRequest")},
)
async def put(request: Request, caller: Administrator) -> Response:
    """
    Set a budget; it replaces one with the same scope, value, unit and window.

    It takes effect everywhere within half a second, in the current window, and
    overrides what the code declares.
    """
    server_state = server_state_of(request)
    asked = await server_state.read(request, BudgetRequest)
    if (asked.tokens is None) == (asked.money is None):
        raise refused_field("tokens", "give either tokens or money")
    budget = Budget(
        asked.scope,
        tokens=asked.tokens,
        money=asked.money,
        per=timedelta(seconds=asked.per_seconds),
        of=asked.of,
        overrun=asked.overrun,
    )
    entry = await _entry(request, caller, "budget.set", budget)
    await server_state.engine.budgets.put(budget, entry)
    return wire.answer(await _list(server_state.engine, caller))


@router.delete(
    "/v1/budgets",
    operation_id="drop_budget",
    summary="Delete a budget",
    response_model=BudgetList,
    response_description="The remaining budgets.",
    responses=documented(BudgetNotFound, writes=True),
)
async def drop(
    request: Request, caller: Administrator, query: Annotated[BudgetQuery, Query()]
) -> Response:
    """Delete a budget; one that the code declares is set again at the next start."""
    engine = server_state_of(request).engine
    budget = budget_of(query.scope, query.unit, 0, query.per_seconds * 1000, query.of)
    entry = await _entry(request, caller, "budget.dropped", budget)
    if not await engine.budgets.drop(budget, entry):
        raise BudgetNotFound("the budget does not exist")
    return wire.answer(await _list(engine, caller))


async def budget_left(request: Request, caller: Caller) -> dict[str, str]:
    """Return headers with what is left of the token budget that has the least left."""
    engine = server_state_of(request).engine
    found = await engine.budgets.accounts(caller.owner, caller.key)
    states = [state for state in found if state.account.unit == "tokens"]
    if not states:
        return {}
    state = min(states, key=lambda state: state.balance.left(state.limit))
    window, per = state.account.window, state.account.per
    seconds = max(1, -(-(window + per - engine.now()) // 1000))
    left = state.balance.left(state.limit)
    return budget_headers(state.limit, per // 1000, left, seconds)


async def _list(engine: Engine, caller: Caller) -> dict[str, Any]:
    if ADMIN not in caller.scopes:
        found = await engine.budgets.accounts(caller.owner, caller.key)
        return {"items": [_view(state) for state in found], "budgets": []}
    rules = await engine.budgets.list()
    found = await engine.budgets.accounts()
    return {
        "items": [_view(state) for state in found],
        "budgets": [_rule(budget) for budget in rules],
    }


async def _entry(
    request: Request, caller: Caller, action: str, budget: Budget
) -> AuditEntry:
    """Return the audit entry of a change, for the tenant of the budget."""
    tenant = budget.tenant
    if budget.scope == Scope.KEY and budget.of is not None:
        tenant = await server_state_of(request).keys.tenant_of(budget.of)
    target = f"{budget.scope}:{budget.of or '*'}:{budget.unit}:{budget.window // 1000}"
    tenant = tenant or PLATFORM_TENANT
    return entry_of(request, caller, action, target, tenant=tenant)


def _rule(budget: Budget) -> dict[str, Any]:
    return {
        "scope": budget.scope,
        "of": budget.of,
        "unit": budget.unit,
        "limit": amount(budget.unit, budget.limit),
        "per_seconds": budget.window // 1000,
        "overrun": budget.overrun,
    }


def _view(state: BudgetState) -> dict[str, Any]:
    account, limit, balance = state
    unit = account.unit
    return {
        "scope": account.scope,
        "of": account.value,
        "unit": unit,
        "limit": amount(unit, limit),
        "per_seconds": account.per // 1000,
        "window_start": wire.time(account.window),
        "window_end": wire.time(account.window + account.per),
        "held": amount(unit, balance.held),
        "settled": amount(unit, balance.settled),
        "overdraft": amount(unit, balance.overdraft),
        "left": amount(unit, balance.left(limit)),
    }


def _history(found: BalanceHistory) -> dict[str, Any]:
    account, limit, balance = found.state
    points = [*found.samples, BalanceSample(found.now, balance, limit)]
    return {
        "window_start": wire.time(account.window),
        "window_end": wire.time(account.window + account.per),
        "every_seconds": slot_length(account.per) // 1000,
        "points": [
            {
                "at": wire.time(at),
                "settled": amount(account.unit, balance.settled),
                "held": amount(account.unit, balance.held),
                "limit": amount(account.unit, limit),
            }
            for at, balance, limit in points
        ],
    }
