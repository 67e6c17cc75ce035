"""
Submits that the audit log records: the entries commit with what is submitted.

If nothing is submitted, because the request is a repeat or is refused, nothing is
recorded.
"""

from collections.abc import Callable, Sequence

from backburner.domain.jobs.job import Submitted
from backburner.ports.store.keys import AuditEntry
from backburner.ports.store.transactions import Tx


def audited(
    submit: Callable[[Tx], Sequence[Submitted]],
    entries: Sequence[AuditEntry],
    *,
    changes_more: bool = False,
) -> Callable[[Tx], Sequence[Submitted]]:
    """
    Return a body that submits, and adds entries unless all of it is a repeat.

    `changes_more`: it is no repeat, even if all that it submits is known.
    """

    def body(tx: Tx) -> Sequence[Submitted]:
        answers = submit(tx)
        if changes_more or not all(answer.replayed for answer in answers):
            tx.record(entries)
        return answers

    return body
