"""Prints usage and cost of jobs."""

from backburner.cli import printing
from backburner.client import Job, Receipt

UNKNOWN = "unknown"


def say_receipt(job: Job) -> None:
    """Print what a cancelled job had used and what is not undone."""
    receipt = job.get("receipt")
    if receipt is None:
        return
    printing.say(_used(receipt))
    for left in receipt["not_undone"]:
        printing.say(f"not undone: {left['count']} {left['detail']}")


def _used(receipt: Receipt) -> str:
    released = receipt["hold_released"]
    freed = "" if released is None else f"; released {released['tokens']} tokens"
    cost = receipt["cost_usd"] or UNKNOWN
    return f"used {receipt['tokens_used']} tokens, cost {cost}{freed}"


def tokens_of(job: Job) -> int | None:
    """Return the number of tokens a job used, if any."""
    used = job.get("usage")
    return None if used is None else used["input_tokens"] + used["output_tokens"]


def cost_of(job: Job) -> str | None:
    """Return the cost of a job, if it used anything."""
    used = job.get("usage")
    return None if used is None else used["cost_usd"] or UNKNOWN
