"""Decides which queues a worker claims from, and how many jobs of each."""

from collections import Counter
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
    ) -> None:
        """Plan for these queues; `running` counts the jobs of a queue that run here."""
        self.queues = tuple(queues)
        self.may_have_work = True
        self.limited = set(policies)
        self.paused: set[str] = set()
        self._policies = policies
        self._running = running
        self._bound = bound
        self._closed: set[str] = set()
        self._notifications = 0
        self._heard = 0
        self._order = (*self.queues[-1:], *self.queues[:-1])
        """The queues, those first that were asked longest ago."""
        self._asked: Collection[str] = ()
        """Those that could be asked at the last claim."""
        self._drained: set[str] = set()
        """Those that gave less than was asked for since the last notification."""
        self._empty: set[str] = set()
        """Those that gave nothing when they were last asked."""

    def notify(self) -> None:
        """Record that any queue may have jobs to claim."""
        self._notifications += 1
        self._drained.clear()
        self.may_have_work = True

    def has_limits(self, queue: str) -> bool:
        """Say whether the end of one of its jobs may let another one start."""
        return queue in self.limited

    def claim_requests(self, free: int) -> Sequence[ClaimRequest]:
        """
        Divide the free slots among the queues, another one first each time.

        A queue that gave less than was asked for is not asked again before the next
        notification. What a queue leaves unused goes to the others (`extra`), and one
        that gave nothing the last time counts for one slot only.
        """
        queues = [
            queue
            for queue in self._order
            if queue not in self._drained and self._most(queue, free)
        ]
        if not queues:
            self.may_have_work = False
            return ()
        self._heard, self._asked = self._notifications, queues
        asked = queues[:free]
        rest = [queue for queue in self._order if queue not in asked]
        # If all are asked, the last of them is first the next time.
        self._order = (*rest, *asked) if rest else (*asked[-1:], *asked[:-1])
        busy = [queue for queue in asked if queue not in self._empty]
        if not busy:
            return [self._request(queue, free // len(asked), free) for queue in asked]
        idle = [queue for queue in asked if queue in self._empty]
        share = (free - len(idle)) // len(busy)
        # Idle queues first: what they leave goes to the others in the same claim.
        return [
            *(self._request(queue, 1, free) for queue in idle),
            *(self._request(queue, share, free) for queue in busy),
        ]

    def _request(self, queue: str, share: int, free: int) -> ClaimRequest:
        limit = self._most(queue, share)
        if self._bound(queue) is not None:
            return ClaimRequest(queue, limit)  # a job of it needs a message
        return ClaimRequest(queue, limit, self._share(queue, free) - limit)

    def got(
        self, claim_requests: Sequence[ClaimRequest], claimed: Sequence[str]
    ) -> None:
        """
        Record what a claim returned: `claimed` names the queue of each job.

        Work may be left unless every queue that could be asked gave less than it was
        asked for, and no notification came meanwhile.
        """
        counts = Counter(claimed)
        is_current = self._heard == self._notifications
        for queue, limit, _ in claim_requests:
            count = counts[queue]
            if count:
                self._empty.discard(queue)
            else:
                self._empty.add(queue)
            if count < limit and is_current:
                self._drained.add(queue)
        if is_current and self._drained.issuperset(self._asked):
            self.may_have_work = False

    def room(self, queue: str, free: int) -> int:
        """Return how much of a queue there is room for, if anything of it may start."""
        return 0 if queue in self.paused else self._share(queue, free)

    def learn(self, states: Sequence[QueueState]) -> tuple[bool, float | None]:
        """
        Take in the states of queues, read once per poll.

        Return whether one may have work now that had none, and in how many seconds a
        window opens. All queues are asked again at the next claim: a notification may
        have been lost while other queues kept the worker busy.
        """
        self._drained.clear()
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
