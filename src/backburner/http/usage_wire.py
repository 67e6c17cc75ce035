"""Usage, quotes and receipts as JSON."""

from typing import Any

from backburner.domain.costs.budget import Balance, Charge, amount
from backburner.domain.costs.quote import Span
from backburner.domain.costs.usage import Spent, dollars
from backburner.domain.jobs.job import Instant
from backburner.domain.jobs.receipt import Receipt
from backburner.engine.submit.quoting import Quote
from backburner.http import wire
from backburner.ports.store.usage import CostReport
from backburner.shapes import usage as shapes


def usage(spent: Spent) -> shapes.Usage:
    """Write what a job used."""
    return {
        **_sums(spent),
        "models": list(spent.models),
        "price_version": ", ".join(spent.price_versions) or None,
    }


def group(key: str, spent: Spent) -> shapes.UsageGroup:
    """Write what jobs used together."""
    return {"key": key, **total(spent)}


def total(spent: Spent) -> shapes.UsageTotal:
    """Write what all of them used."""
    return {"jobs": spent.jobs, **_sums(spent)}


def costs(report: CostReport) -> shapes.Costs:
    """Write what calls cost, and for what."""

    def by(kind: str) -> list[shapes.UsageGroup]:
        return [group(*item) for item in report.by[kind]]

    return {
        "since": wire.time(report.since),
        "capped": report.is_capped,
        "total": total(report.total),
        "failed": total(report.failed),
        "by_capability": by("capability"),
        "by_model": by("model"),
        "by_user": by("user"),
        "jobs": [
            {
                "id": job.id,
                "capability": job.capability,
                "user": job.user,
                "state": job.state,
                **_sums(job.spent),
            }
            for job in report.jobs
        ],
    }


def _sums(spent: Spent) -> shapes.UsageSums:
    known: Any = dollars(spent.known_cost)
    return {
        "calls": spent.calls,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cached_tokens": spent.cached_tokens,
        "cost_usd": dollars(spent.cost),
        "priced": not spent.unpriced,
        "unpriced_calls": spent.unpriced,
        "priced_cost_usd": known,
        "late_calls": spent.late,
    }


def receipt(told: Receipt) -> shapes.Receipt:
    """Write what a cancelled job leaves behind."""
    return {
        "tokens_used": told.spent.tokens,
        "cost_usd": dollars(told.spent.cost),
        "priced": not told.spent.unpriced,
        "hold_released": _released(told),
        "text_delivered": told.text,
        "not_undone": [
            {"kind": kind, "count": number, "detail": detail}
            for kind, number, detail in told.not_undone
        ],
    }


def _released(told: Receipt) -> shapes.Hold | None:
    if told.tokens_released is None and told.money_released is None:
        return None
    return {
        "tokens": told.tokens_released,
        "cost_usd": dollars(told.money_released),
    }


def quote(told: Quote) -> shapes.Quote:
    """Write what a job would take."""
    job, forecast = told.job, told.forecast
    return {
        "capability": job.capability,
        "queue": job.queue,
        "priority": job.priority,
        "model": job.model,
        "tokens": told.tokens,
        "tokens_basis": told.basis,
        "cost_usd": dollars(told.price.cost),
        "priced": told.price.cost is not None,
        "price_version": told.price.version,
        "jobs_ahead": told.ahead,
        "slots": told.slots,
        "paused": told.is_paused,
        "samples": forecast.samples,
        "start": _times(told.at, forecast.start),
        "finish": _times(told.at, forecast.end),
        "budget": _tightest(told),
    }


def _times(now: Instant, span: Span | None) -> shapes.Times | None:
    if span is None:
        return None
    return {"p50": wire.time(now + span.p50), "p90": wire.time(now + span.p90)}


def _tightest(told: Quote) -> Any:
    """Write the budget that leaves the least of its limit; `None` if none holds."""
    if not told.room:
        return None
    charge, balance = min(told.room, key=lambda found: _share(*found))
    unit, left = charge.account.unit, balance.left(charge.limit)
    wanted = charge.amount or 0
    return {
        "scope": charge.account.scope,
        "unit": unit,
        "limit": amount(unit, charge.limit),
        "left": amount(unit, left),
        "left_after": amount(unit, max(0, left - wanted)),
        "admits": wanted <= left and left > 0,
        "window_end": wire.time(charge.account.window + charge.account.per),
    }


def _share(charge: Charge, balance: Balance) -> float:
    left = balance.left(charge.limit) - (charge.amount or 0)
    return left / max(1, charge.limit)
