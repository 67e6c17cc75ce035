from typing import Any

from pydantic import BaseModel

from backburner.domain.costs.tokens import estimate
from backburner.engine.registry import Registry, capability
from backburner.engine.run.context import Context
from backburner.engine.submit.estimates import FRAME, estimate_of
from backburner.engine.submit.submission import Options, Submission
from backburner.testing.doubles import FrozenClock, SeededDice

SYSTEM = "You turn sentences into tasks. Answer in JSON."


class Sentence(BaseModel):
    text: str


@capability("parse", tokens=estimate_of(system=SYSTEM, output=300))
async def parse(_ctx: Context, _value: Sentence) -> dict[str, Any]:
    return {}


def tokens_of(text):
    submission = Submission(Registry([parse]), FrozenClock(), SeededDice())
    return submission.prepare(parse, Sentence(text=text), Options()).tokens


def test_a_job_is_expected_to_cost_its_prompt_its_input_and_its_output():
    asked = estimate('{"text":"Buy milk tomorrow"}')

    assert FRAME + estimate(SYSTEM) + asked + 300 == tokens_of("Buy milk tomorrow")


def test_a_longer_input_is_expected_to_cost_more():
    assert tokens_of("Buy milk " * 100) > tokens_of("Buy milk") + 150


def test_a_text_counts_as_it_is():
    assert FRAME + estimate("Buy milk") == estimate_of()("Buy milk")
