"""What makes up for a broker is needed: without it, a seed finds a job that waits."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from backburner.engine.broker.intake import Grip, Intake
from backburner.ports.store.jobs import ClaimRequest
from backburner.testing.simulation import Variant, simulate
from backburner.testing.simulation.world import Post
from tests.simulation.mutation import SEEDS, first_seed_to_break, unmeasured

pytestmark = pytest.mark.thorough

NEVER = timedelta(days=1).total_seconds()
UNCOMPARED = Variant(look=NEVER, sweep=NEVER)
BROKERED = [seed for seed in range(SEEDS) if Post(seed).is_used]


def test_a_job_waits_if_nobody_compares_the_broker_with_the_store() -> None:
    assert first_seed_to_break("I2", UNCOMPARED, BROKERED) is not None


@pytest.mark.parametrize(
    "variant", [Variant(look=NEVER), Variant(sweep=NEVER)], ids=["looks", "sweeps"]
)
def test_either_of_looks_and_sweeps_is_enough(variant: Variant) -> None:
    with unmeasured():
        broken = {seed: simulate(seed, variant).breaches for seed in BROKERED[:15]}

    assert {} == {seed: told for seed, told in broken.items() if told}


def kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have brokers lose and forget nothing."""
    made = Post.__init__

    def make(post: Post, seed: int) -> None:
        made(post, seed)
        post.server.mischief.loss = post.doubt = 0.0
        monkeypatch.setattr(post.server, "flush", lambda: None)

    monkeypatch.setattr(Post, "__init__", make)


def test_a_job_waits_if_messages_are_acknowledged_before_the_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind(monkeypatch)
    grip = Intake.grip

    def hasty(intake: Intake, claim_requests: Sequence[ClaimRequest]) -> Grip:
        for queue, messages in grip(intake, claim_requests).items():
            intake._done.setdefault(queue, []).extend(messages)
        intake._tidying.poke()
        return {}

    monkeypatch.setattr(Intake, "grip", hasty)

    assert first_seed_to_break("I2", UNCOMPARED, BROKERED) is not None
