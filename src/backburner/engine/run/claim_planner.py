"""Decides which queues a worker claims from, and how many jobs of each."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from backburner.domain.queues.queue import Queue, QueueState
from backburner.ports.store.jobs import ClaimRequest

Bound: TypeAlias = Callable[[str], int | None]
"""Says how much of a queue may be asked for; `None`: any number."""


class ClaimPlanner:
    """One worker's queues: whose turn it is, which have limits, which may have work."""

    def __init__(
        self,
        queues: Sequence[str],
        policies: Mapping[str, Queue],
        running: Callable[[str], int],
        bound: Bound = lambda _queue: None,
        *,
        seldom: Collection[str] = (),
    ) -> None:
        """
        Take, besides, what tells how many jobs of a queue run here.

        Queues in `seldom` have a job now and then: they are asked for one at a time
        and leave the slots to the others.
        """
        self.queues = tuple(queues)
        self.may_have_work = True
        self.limited = set(policies)
        self.paused: set[str] = set()
        self._policies = policies
        self._running = running
        self._bound = bound
        self._seldom = frozenset(seldom)
        self._closed: set[str] = set()
        self._notifications = 0
        self._heard = 0
        self._order = (*self.queues[-1:], *self.queues[:-1])
        """The queues, those first that were asked longest ago."""
        self._asked: Collection[str] = ()
        """Those that something may be had of, at the last ask."""
        self._quiet: set[str] = set()
        """Those that were asked in vain since something was had or heard of."""

    def notify(self) -> None:
        """Hear that there may be work."""
        self._notifications += 1
        self._quiet.clear()
        self.may_have_work = True

    def has_limits(self, queue: str) -> bool:
        """Say whether the end of one of its jobs may let another one start."""
        return queue in self.limited

    def claim_requests(self, free: int) -> Sequence[ClaimRequest]:
        """Ask every queue, another one first each time, so that none starves."""
        queues = [queue for queue in self._order if self._most(queue, free)]
        if not queues:
            self.may_have_work = False
            return ()
        self._heard, self._asked = self._notifications, queues
        asked = queues[:free]
        rest = [queue for queue in self._order if queue not in asked]
        # If all are asked, the last of them is first the next time.
        self._order = (*rest, *asked) if rest else (*asked[-1:], *asked[:-1])
        common = sum(queue not in self._seldom for queue in asked)
        if not common:
            return [ClaimRequest(queue, self._most(queue, 1)) for queue in asked]
        share = (free - len(asked) + common) // common
        return [
            ClaimRequest(
                queue, self._most(queue, 1 if queue in self._seldom else share)
            )
            for queue in asked
        ]

    def got(self, claim_requests: Sequence[ClaimRequest], count: int) -> None:
        """Rest when every queue was asked in vain; few slots ask only some at once."""
        limits = [
            each.limit for each in claim_requests if each.queue not in self._seldom
        ]
        is_full = count >= min(limits, default=1)
        if is_full or self._heard != self._notifications:
            self._quiet.clear()
            return
        self._quiet.update(claim_request.queue for claim_request in claim_requests)
        if self._quiet.issuperset(self._asked):
            self._quiet.clear()
            self.may_have_work = False

    def room(self, queue: str, free: int) -> int:
        """Return how much of a queue there is room for, if anything of it may start."""
        return 0 if queue in self.paused else self._share(queue, free)

    def learn(self, states: Sequence[QueueState]) -> tuple[bool, float | None]:
        """
        Be told how queues stand.

        Return whether one may have work now that had none, and in how many seconds a
        window opens.
        """
        ours = [state for state in states if state.name in self.queues]
        self.limited = {state.name for state in ours if state.is_limited}
        paused = {state.name for state in ours if state.paused}
        closed = {s.name: s.opens_in for s in ours if s.opens_in is not None}
        is_opened = bool(self._closed - closed.keys() or self.paused - paused)
        self._closed, self.paused = set(closed), paused
        return is_opened, min(closed.values()) / 1000 if closed else None

    def _most(self, queue: str, share: int) -> int:
        bound = self._bound(queue)
        left = self._share(queue, share)
        return left if bound is None else min(left, bound)

    def _share(self, queue: str, share: int) -> int:
        """Return how much of a share the queue's limit on one worker leaves."""
        policy = self._policies.get(queue)
        if policy is None or policy.per_worker is None:
            return share
        return max(0, min(share, policy.per_worker - self._running(queue)))
