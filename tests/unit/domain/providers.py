"""Providers with limits that change, and jobs that call them by one lane."""

import heapq
import random
from collections import deque
from itertools import count
from typing import NamedTuple

from backburner.domain.lanes import permit as lanes
from backburner.domain.lanes.lane import LaneState
from backburner.domain.lanes.rate_limit_headers import rate_limit_info

LIMITS = (60, 30, 90)
STEP = 120.0
SETTLING = 30.0
"""Seconds after each step that are not counted."""
WARM_UP = STEP * len(LIMITS)
"""A lane that nobody knows is given one round to become known."""
ROUNDS = 5
EPOCH = 1_767_268_800_000


def limit_at(now):
    return LIMITS[int(now // STEP) % len(LIMITS)]


class Sliding:
    """Serves so many calls in any minute."""

    def __init__(self):
        self.served = deque()

    def serves(self, now, limit):
        while self.served and self.served[0] <= now - 60:
            self.served.popleft()
        if len(self.served) >= limit:
            return False
        self.served.append(now)
        return True

    def headers(self, now, limit):
        left = max(0, limit - len(self.served))
        over = len(self.served) - limit
        wait = self.served[over] + 60 - now if over >= 0 else 0.0
        full = self.served[-1] + 60 - now if self.served else 0.0
        return _headers(limit, left, full, wait)


class Bucket:
    """Serves from a bucket that holds a share of a minute's calls and fills again."""

    def __init__(self, share=1.0):
        self.share = share
        self.held = LIMITS[0] * share
        self.at = 0.0

    def serves(self, now, limit):
        most = max(1.0, limit * self.share)
        self.held = min(most, self.held + (now - self.at) * limit / 60)
        self.at = now
        if self.held < 1:
            return False
        self.held -= 1
        return True

    def headers(self, now, limit):
        del now
        full = (limit * self.share - self.held) * 60 / limit
        wait = max(0.0, 1 - self.held) * 60 / limit
        return _headers(limit, int(self.held), full, wait)


class Fickle:
    """Refuses by lot, whatever the pace, and says to come again in a second."""

    def __init__(self, share, seed):
        self.share, self.dice = share, random.Random(-seed)
        self.served = 0

    def serves(self, _now, _limit):
        is_served = self.dice.random() >= self.share
        self.served += is_served
        return is_served

    def headers(self, _now, _limit):
        return {"retry-after": "1"}


def _headers(limit, left, full, wait):
    return {
        "x-ratelimit-limit-requests": str(limit),
        "x-ratelimit-remaining-requests": str(left),
        "x-ratelimit-reset-requests": f"{max(0.0, full):.3f}s",
        "retry-after-ms": str(round(max(0.0, wait) * 1000) + 1),
    }


class Step(NamedTuple):
    """What came of the counted part of one step."""

    limit: int
    served: int
    refused: int

    @property
    def throughput(self):
        return self.served / (self.limit * (STEP - SETTLING) / 60)


class Outcome(NamedTuple):
    steps: list[Step]
    asks: int
    """How often jobs asked for each call that was made."""
    longest: float
    """The longest that a job was put back in all, in seconds."""


def simulate(provider, **options):
    """Run jobs against a provider until the rounds are over."""
    world = World(provider, **options)
    while world.due[0][0] < WARM_UP * ROUNDS:
        now, _, act, value = heapq.heappop(world.due)
        act(now, value)
    steps = [Step(*step) for step in world.steps.values()]
    return Outcome(steps, world.asked / world.made, world.longest)


class World:
    """
    A provider, a lane to it, and jobs; each that is served makes room for a new one.

    A job that may not call is put back and comes a little late, as jobs do.
    """

    def __init__(self, provider, *, seed, jobs=60, with_hints=False, take=lanes.take):
        self.provider, self.with_hints, self.take = provider, with_hints, take
        self.dice, self.numbers = random.Random(seed), count()
        self.state, self.held, self.due = LaneState("p/m"), set(), []
        self.steps, self.asked, self.made, self.longest = {}, 0, 0, 0.0
        for _ in range(jobs):
            self.later(self.dice.random() * 2, self.ask, 0.0)

    def later(self, now, act, value):
        heapq.heappush(self.due, (now, next(self.numbers), act, value))

    def ask(self, now, waited):
        self.asked += 1
        ask = lanes.PermitRequest(
            str(next(self.numbers)), 0, int(waited * 1000), self.dice.random()
        )
        held = lanes.Held(len(self.held), self.state.probe in self.held)
        self.state, answer = self.take(self.state, ask, held=held, now=instant(now))
        if isinstance(answer, lanes.Permit):
            self.call(now, answer)
            return
        wait = max(0.1, answer.span / 1000) + 0.02 + self.dice.random() * 0.1
        self.longest = max(self.longest, waited + wait)
        self.later(now + wait, self.ask, waited + wait)

    def call(self, now, permit):
        self.made += 1
        self.held.add(permit.id)
        limit, there = limit_at(now), now + 0.02
        is_served = self.provider.serves(there, limit)
        headers = self.provider.headers(there, limit) if self.with_hints else {}
        least, more = (0.5, 2.0) if is_served else (0.05, 0.1)
        answer = (permit, 200 if is_served else 429, headers)
        self.later(now + least + more * self.dice.random(), self.answer, answer)
        if now >= WARM_UP and now % STEP >= SETTLING:
            step = self.steps.setdefault(int(now // STEP), [limit, 0, 0])
            step[1 if is_served else 2] += 1

    def answer(self, now, answer):
        permit, status, headers = answer
        self.held.discard(permit.id)
        told = rate_limit_info(status, headers, now=instant(now))
        self.state = lanes.give(self.state, permit, told, now=instant(now))
        self.later(now + 0.02, self.ask, 0.0)


def instant(now):
    return EPOCH + int(now * 1000)
