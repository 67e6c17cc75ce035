"""Workers killed around the commit of a step: what was stored is not done again."""

from collections import Counter

import pytest

from backburner.domain.jobs.job import JobState


async def killed_and_resumed(
    fleet, client, tmp_path, fault, *, durable=True, work=("five steps", 15)
):
    """Kill a worker at a failpoint, let another finish; return how often each ran."""
    journal = tmp_path / "journal"
    value = {"path": str(journal), "durable": durable}
    capability, total = work
    [job] = await client.submit(capability, value)
    code = await fleet.worker("stepping", BACKBURNER_FAULT=fault).ended()
    await fleet.worker("stepping").ready()
    [done] = await client.ended([job])
    assert code != 0
    assert (JobState.SUCCEEDED, str(total)) == (done.state, done.output)
    return Counter(map(int, journal.read_text().split()))


@pytest.mark.parametrize("fault", ["save.after_commit:3", "step.stored:3"])
async def test_a_step_that_was_stored_is_not_done_again(fleet, client, tmp_path, fault):
    runs = await killed_and_resumed(fleet, client, tmp_path, fault)
    assert dict.fromkeys(range(1, 6), 1) == runs


async def test_only_the_step_whose_result_was_not_stored_is_done_again(
    fleet, client, tmp_path
):
    fault = "save.before_commit:3"
    runs = await killed_and_resumed(fleet, client, tmp_path, fault)
    assert {1: 1, 2: 1, 3: 2, 4: 1, 5: 1} == runs


@pytest.mark.one_store
async def test_without_steps_all_of_it_is_done_again(fleet, client, tmp_path):
    runs = await killed_and_resumed(
        fleet, client, tmp_path, "save.after_commit:3", durable=False
    )
    assert {1: 2, 2: 2, 3: 2, 4: 1, 5: 1} == runs


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("step.withdrawn", {1: 2, 2: 1, 3: 1}),  # in doubt, so it is done again
        ("step.forgotten", {1: 2, 2: 1, 3: 1}),  # not forgotten: it was stored before
        ("step.saved", {1: 2, 2: 2, 3: 2}),  # forgotten before; usage and result go
    ],
)
async def test_a_change_of_steps_is_whole_or_not_there(
    fleet, client, tmp_path, fault, expected
):
    runs = await killed_and_resumed(
        fleet, client, tmp_path, fault, work=("changed steps", 6)
    )
    assert expected == runs
