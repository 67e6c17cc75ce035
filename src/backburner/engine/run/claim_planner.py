"""Decides which queues a worker claims from, and how many jobs of each."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from backburner.domain.queues.queue import Queue, QueueState
from backburner.ports.store.jobs import ClaimRequest

Bound: TypeAlias = Callable[[str], int | None]
"""Returns how many jobs of a queue may be claimed; `None`: no limit."""


class ClaimPlanner:
    """Tracks a worker's queues: order, limits, and which may have jobs."""

    def __init__(
        self,
        queues: Sequence[str],
        policies: Mapping[str, Queue],
        running: Callable[[str], int],
        bound: Bound = lambda _queue: None,
    ) -> None:
        """Plan claims from `queues`; `running` counts a queue's jobs in this worker."""
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
        """The queues, least recently asked first."""
        self._asked: Collection[str] = ()
        """The queues that could be asked at the last claim."""
        self._drained: set[str] = set()
        """
        Queues that returned fewer jobs than requested since the last notification.
        """
        self._empty: set[str] = set()
        """Queues that returned no jobs when they were last asked."""

    def notify(self) -> None:
        """Record that any queue may have jobs to claim."""
        self._notifications += 1
        self._drained.clear()
        self.may_have_work = True

    def has_limits(self, queue: str) -> bool:
        """Say whether the end of one of the queue's jobs may let another one start."""
        return queue in self.limited

    def claim_requests(self, free: int) -> Sequence[ClaimRequest]:
        """
        Divide the free slots among the queues, starting with another one each time.

        A queue that returned fewer jobs than requested is not asked again before the
        next notification. Slots that a queue leaves unused go to the others (`extra`).
        A queue that returned no jobs the last time gets one slot only.
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
        # Idle queues first: the slots they leave go to the others in the same claim.
        return [
            *(self._request(queue, 1, free) for queue in idle),
            *(self._request(queue, share, free) for queue in busy),
        ]

    def _request(self, queue: str, share: int, free: int) -> ClaimRequest:
        limit = self._most(queue, share)
        if self._bound(queue) is not None:
            return ClaimRequest(queue, limit)  # each job needs a broker message
        return ClaimRequest(queue, limit, self._share(queue, free) - limit)

    def got(
        self, claim_requests: Sequence[ClaimRequest], claimed: Sequence[str]
    ) -> None:
        """
        Record what a claim returned: `claimed` names the queue of each job.

        No jobs are left if every queue that could be asked returned fewer than
        requested and no notification came meanwhile.
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
        """Return how many jobs of a queue could start; 0 if it is paused."""
        return 0 if queue in self.paused else self._share(queue, free)

    def learn(self, states: Sequence[QueueState]) -> tuple[bool, float | None]:
        """
        Record the states of queues, read once per poll.

        Return whether a queue may have jobs now that had none before, and the seconds
        until a rate window opens. All queues are asked again at the next claim: a
        notification may have been lost while other queues kept the worker busy.
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
        """Return how much of a share the queue's limit per worker leaves."""
        policy = self._policies.get(queue)
        if policy is None or policy.per_worker is None:
            return share
        return max(0, min(share, policy.per_worker - self._running(queue)))
