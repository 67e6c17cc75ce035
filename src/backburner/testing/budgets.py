"""
The auditor's checks of budgets.

Each account is checked entry by entry in the order in which they were written: accounts
are locked while they are written, so this is the order of commits.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from backburner.domain.costs.budget import Balance, Kind, Unit, post
from backburner.testing.records import AccountBook, Books, Breach

NAME: Final = "budget"
PAID: Final = frozenset({Kind.SETTLED, Kind.OVERDRAWN})


def breaches(books: Books) -> Iterator[Breach]:
    """Yield all errors in the ledger of a store at rest."""
    paid = _paid(books)
    for book in books.accounts:
        for told in (*_course(book), *_rest(book), *_holds(book)):
            yield Breach(NAME, book.name, told)
        if book.unit == Unit.TOKENS:
            for told in _use(book, books.used, paid):
                yield Breach(NAME, book.name, told)
    yield from _jobs(books)


def _course(book: AccountBook) -> Iterator[str]:
    """Check that no admission exceeded the limit, and that the entries add up."""
    balance = Balance()
    for entry in book.entries:
        balance = post(balance, entry.posting)
        if min(balance) < 0:
            yield f"fell below nothing: {balance}"
        if entry.posting.kind is Kind.RESERVED:
            yield from _admission(balance, entry.posting.amount, entry.limit)
    if balance != book.balance:
        yield f"is {book.balance}, its entries lead to {balance}"


def _admission(balance: Balance, amount: int, limit: int | None) -> Iterator[str]:
    if limit is None:
        yield "somebody was admitted without a limit"
    elif amount and balance.settled + balance.held > limit:
        yield f"admitted {amount} over {limit}: {balance}"


def _rest(book: AccountBook) -> Iterator[str]:
    if book.balance.held:
        yield f"holds {book.balance.held} at rest"
    if any(hold.is_open for hold in book.holds):
        yield "has open holds at rest"


def _paid(books: Books) -> Counter[int]:
    """Add up what was paid for each hold, over all its accounts."""
    paid: Counter[int] = Counter()
    for book in books.accounts:
        for entry in book.entries:
            if entry.posting.kind in PAID:
                paid[entry.hold] += entry.posting.amount
    return paid


def _holds(book: AccountBook) -> Iterator[str]:
    """Check that each hold was made once and is accounted for completely."""
    sums: Counter[tuple[int, Kind]] = Counter()
    made: Counter[int] = Counter()
    for entry in book.entries:
        sums[entry.hold, entry.posting.kind] += entry.posting.amount
        made[entry.hold] += entry.posting.kind is Kind.RESERVED
    here = {hold.seq: hold for hold in book.holds}
    for seq in {*made, *here}:
        hold = here.get(seq)
        given = sums[seq, Kind.SETTLED] + sums[seq, Kind.RELEASED]
        held = sums[seq, Kind.RESERVED]
        is_plain = hold is not None and not hold.has_waited
        if is_plain and (made[seq], held) != (1, here[seq].amount):
            yield f"hold {seq} of {here[seq].amount} was not made once"
        left = hold.amount if hold is not None and hold.is_open else 0
        if held - given != left:
            yield f"hold {seq} has {held - given} left, not {left}"


def _use(
    book: AccountBook, used: Mapping[tuple[int, int], int], paid: Mapping[int, int]
) -> Iterator[str]:
    """Check that jobs paid for what they reported or, without a report, an estimate."""
    for hold in book.holds:
        if hold.job is None or hold.is_open:
            continue
        told = used.get((hold.job, hold.generation))
        estimate = hold.expected
        fair = {0, estimate} if told is None else {told, max(told, estimate)}
        if paid[hold.seq] not in fair:
            yield f"hold {hold.seq} paid {paid[hold.seq]}, its job used {told}"


def _jobs(books: Books) -> Iterator[Breach]:
    """Check that each job has as many holds in its last generation as its row says."""
    held: Counter[tuple[int | None, int]] = Counter(
        (hold.job, hold.generation) for book in books.accounts for hold in book.holds
    )
    for record in books.jobs.values():
        row = record.row
        if held[row.seq, row.generation] != row.holds:
            told = f"has {held[row.seq, row.generation]} holds, not {row.holds}"
            yield Breach(NAME, row.id, told)
