"""`vpr`: a value proposition report, what a candidate offers for one position."""

from typing import Literal

from pydantic import BaseModel, Field

from backburner_apps.features.core.keywords import compare, sentence_with
from backburner_apps.features.core.prompting import UNTRUSTED, section
from backburner_apps.features.core.request import FeatureRequest, Text
from backburner_apps.features.core.task import AsyncTaskHandler

SYSTEM = f"""You are a careers adviser who writes value proposition reports.
Show an employer what this candidate offers for this position. Name the requirements of
the posting that the candidate meets, each with evidence from the CV or from the
candidate's own answers: projects, numbers, results. Name what sets the candidate apart
from others, and for each requirement that is not met how the candidate can address it
honestly. Use only facts from the given texts. Write in the language of the posting.
{UNTRUSTED}"""


class GapAnswer(BaseModel):
    """A question of `gap-analysis` and the candidate's answer."""

    question: Text
    answer: Text


class VprRequest(FeatureRequest):
    """A CV, a posting, and answers to the questions of `gap-analysis`."""

    gap_answers: list[GapAnswer] = Field(default_factory=list, max_length=20)
    tone: Literal["formal", "confident", "warm"] = "confident"


class Match(BaseModel):
    """A requirement that the candidate meets."""

    requirement: str
    evidence: str
    strength: Literal["strong", "partial"]


class Concern(BaseModel):
    """A requirement that is not met, and how to address that."""

    requirement: str
    mitigation: str


class ValuePropositionReport(BaseModel):
    """The result of the feature."""

    headline: str = Field(min_length=1)
    summary: str
    matches: list[Match]
    differentiators: list[str]
    concerns: list[Concern]


class Vpr(AsyncTaskHandler[ValuePropositionReport]):
    """Writes a value proposition report."""

    feature = "vpr"
    request_model = VprRequest

    async def process(self, job_id: str, request: VprRequest) -> ValuePropositionReport:
        """Call the model for the report."""
        answers = [f"{one.question}\n{one.answer}" for one in request.gap_answers]
        sections = [
            section("job_posting", request.job_posting),
            section("cv", request.user_cv or ""),
            *(section("answer", text) for text in answers),
            f"Write in a {request.tone} tone.",
        ]
        return await self.ask(
            "\n\n".join(sections),
            into=ValuePropositionReport,
            system=SYSTEM,
            example=lambda: _example(request),
        )


def _example(request: VprRequest) -> ValuePropositionReport:
    """Return the answer of the mock provider, by comparing words."""
    answers = [one.answer for one in request.gap_answers]
    text = "\n".join([request.user_cv or "", *answers])
    met, missing = compare(text, request.job_posting)
    found = {one: sentence_with(text, one) for one in met}
    advice = "Say what you have done that is close to it, and how you would learn it."
    return ValuePropositionReport(
        headline=f"Meets {len(met)} of {len(met) + len(missing)} requirements",
        summary="Compared by words: no model is set up.",
        matches=[
            Match(requirement=one, evidence=line, strength="strong")
            for one, line in found.items()
        ],
        differentiators=list(found.values())[:3],
        concerns=[Concern(requirement=one, mitigation=advice) for one in missing],
    )
