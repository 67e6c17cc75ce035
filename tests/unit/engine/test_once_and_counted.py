"""What is done by nobody, by another process, or a second time is not done here."""

from types import SimpleNamespace

import pytest

from backburner.domain.errors import BudgetExhausted, JobNotFound
from backburner.domain.groups.batch import Members
from backburner.domain.jobs.job import Submitted
from backburner.engine.groups import batches as batching
from backburner.engine.groups.batches import Batches
from backburner.engine.maintenance.scheduler import Scheduler
from backburner.engine.maintenance.upkeep import Upkeep
from backburner.engine.ticket import Ticket
from backburner.ports.store.schedules import Firing
from backburner.testing.samples import a_new_flow, a_new_job, a_new_step


class Rung:
    def __init__(self):
        self.notifications = 0

    def notify(self, _notifications):
        self.notifications += 1

    def hit(self, _moment):
        pass


async def test_due_jobs_that_others_hold_are_looked_for_at_the_next_poll():
    upkeep = object.__new__(Upkeep)
    upkeep._notifier = upkeep._faults = Rung()
    upkeep._store = Store(next_due=0, promote=0)
    upkeep._read_clock = Store(now=5).now

    assert await upkeep.promote() is None
    assert 0 == upkeep._notifier.notifications


class Store:
    """Answers every verb with what it was given."""

    def __init__(self, **answers):
        self._answers = answers

    def __getattr__(self, verb):
        async def answer(*_args, **_options):
            return self._answers[verb]

        return answer


async def test_a_ticket_of_a_job_that_was_pruned_says_so():
    ticket = Ticket(Submitted("job_1", "queued"), SimpleNamespace(store=Store(find=[])))

    with pytest.raises(JobNotFound):
        await ticket.wait()


async def test_a_batch_that_another_process_ended_leaves_nothing_behind():
    told = object.__new__(Batches)
    told._store = Store(batches_over=[], tell_batch=False)
    told._clock = SimpleNamespace(now=lambda: 10_000_000)
    told._touched, told._touches, told._seen = {}, 0, 0
    told._told = {7: 0}

    await told.look()

    assert {} == told._told


def test_members_that_were_there_before_are_not_counted_again():
    jobs = [a_new_job(), a_new_job()]
    flow = a_new_flow(a_new_step("a"))
    answers = [
        Submitted(member.id, "queued", replayed=replayed)
        for member, replayed in zip((*jobs, flow), (True, False, True), strict=True)
    ]

    new = batching._new(Members(jobs, [flow]), answers)

    assert ([jobs[1]], []) == (list(new.jobs), list(new.flows))


async def test_ticks_over_budget_are_not_fired():
    scheduler = object.__new__(Scheduler)
    asked = []

    class Poor:
        async def fire(self, firing):
            asked.append(len(firing.jobs))
            if firing.jobs:
                refused = BudgetExhausted.__new__(BudgetExhausted)
                refused.scope, refused.unit = "user", "tokens"
                raise refused
            return True

    scheduler._store = Poor()
    scheduler._payloads = Store(drop=None)
    fired = await scheduler._fire(Firing("s", 0, 1, 0, [a_new_job()]))

    assert [1, 0] == asked
    assert fired is not None
    assert [] == list(fired.jobs)
