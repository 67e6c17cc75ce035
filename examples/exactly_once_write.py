"""A handler may run twice; what it writes at settlement is written once."""

import asyncio
from datetime import timedelta

import sqlalchemy as sa
from pydantic import BaseModel

from backburner import (
    Backburner,
    Context,
    RetryPolicy,
    Transaction,
    TransientError,
    capability,
)

metadata = sa.MetaData()
columns = (sa.Column("job_id", sa.Text), sa.Column("amount", sa.Integer))
payments = sa.Table("payments", metadata, *columns)


class Payment(BaseModel):
    amount: int


at_once = RetryPolicy(max_attempts=2, base=timedelta(), jitter=timedelta())


@capability("pay", retry=at_once)
async def pay(ctx: Context, payment: Payment) -> None:
    """Store the payment in our own table, in the transaction that settles the job."""
    row = {"job_id": ctx.job.id, "amount": payment.amount}
    ctx.at_settlement(lambda tx: tx.connection.execute(sa.insert(payments), row))
    if ctx.job.attempt == 1:
        raise TransientError("the first attempt breaks after its work is done")


def count(tx: Transaction) -> int:
    """Count the rows."""
    return tx.connection.execute(sa.select(sa.func.count(payments.c.amount))).scalar()


async def main() -> None:
    """Run a job that needs two attempts, then look at the table."""
    async with Backburner(store="sqlite:///payments.db", capabilities=[pay]) as bb:
        await bb.transact(lambda tx: metadata.create_all(tx.connection))
        await bb.start_worker()
        ticket = await bb.submit(pay, Payment(amount=42))
        job = await ticket.wait(timeout=10)
        rows = await bb.transact(count)
        print(f"{job.state} after {job.attempt} attempts, {rows} row")


if __name__ == "__main__":
    asyncio.run(main())
