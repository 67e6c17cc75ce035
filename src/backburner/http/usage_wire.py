"""Usage, quotes and receipts as JSON."""

from typing import Any

from backburner.domain.costs.budget import Balance, Charge, amount
from backburner.domain.costs.quote import Span
from backburner.domain.costs.usage import Spent, dollars
from backburner.domain.jobs.job import Instant
from backburner.domain.jobs.receipt import Receipt
from backburner.engine.submit.quoting import Quote
from backburner.http import wire
from backburner.ports.store.usage import CostReport, RecordedCall
from backburner.shapes import usage as shapes


def usage(spent: Spent) -> shapes.Usage:
    """Return the usage of a job."""
    return {
        **_sums(spent),
        "models": list(spent.models),
        "price_version": ", ".join(spent.price_versions) or None,
    }


def call(recorded: RecordedCall) -> shapes.ModelCall:
    """Return a model call of a job."""
    used = recorded.used
    return {
        "at": wire.time(used.at),
        "model": used.model,
        "provider": used.provider,
        "generation": recorded.generation,
        "run": recorded.epoch,
        "duration_ms": used.duration_ms,
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cached_tokens": used.cached_tokens,
        "cost_usd": dollars(used.cost),
        "price_version": used.price_version,
        "late": recorded.is_late,
    }


def group(key: str, spent: Spent) -> shapes.UsageGroup:
    """Return the usage of a group of jobs."""
    return {"key": key, **total(spent)}


def total(spent: Spent) -> shapes.UsageTotal:
    """Return the total usage."""
    return {"jobs": spent.jobs, **_sums(spent)}


def costs(report: CostReport) -> shapes.Costs:
    """Return the cost of calls by purpose."""

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


def receipt(found: Receipt) -> shapes.Receipt:
    """Return the receipt of a cancelled job."""
    return {
        "tokens_used": found.spent.tokens,
        "cost_usd": dollars(found.spent.cost),
        "priced": not found.spent.unpriced,
        "hold_released": _released(found),
        "text_delivered": found.text,
        "not_undone": [
            {"kind": kind, "count": number, "detail": detail}
            for kind, number, detail in found.not_undone
        ],
    }


def _released(found: Receipt) -> shapes.Hold | None:
    if found.tokens_released is None and found.money_released is None:
        return None
    return {
        "tokens": found.tokens_released,
        "cost_usd": dollars(found.money_released),
    }


def quote(estimate: Quote) -> shapes.Quote:
    """Return an estimate for a job."""
    job, forecast = estimate.job, estimate.forecast
    return {
        "capability": job.capability,
        "queue": job.queue,
        "priority": job.priority,
        "model": job.model,
        "tokens": estimate.tokens,
        "tokens_basis": estimate.basis,
        "cost_usd": dollars(estimate.price.cost),
        "priced": estimate.price.cost is not None,
        "price_version": estimate.price.version,
        "jobs_ahead": estimate.ahead,
        "slots": estimate.slots,
        "paused": estimate.is_paused,
        "samples": forecast.samples,
        "start": _times(estimate.at, forecast.start),
        "finish": _times(estimate.at, forecast.end),
        "budget": _tightest(estimate),
    }


def _times(now: Instant, span: Span | None) -> shapes.Times | None:
    if span is None:
        return None
    return {"p50": wire.time(now + span.p50), "p90": wire.time(now + span.p90)}


def _tightest(estimate: Quote) -> Any:
    """Return the budget with the smallest share left; `None` if none applies."""
    if not estimate.room:
        return None
    charge, balance = min(estimate.room, key=lambda found: _share(*found))
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
