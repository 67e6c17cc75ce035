"""`gap-analysis`: questions about requirements that a CV does not mention."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from backburner_apps.features.core.codes import GAP_QUESTIONS_GENERATED
from backburner_apps.features.core.keywords import compare
from backburner_apps.features.core.prompting import UNTRUSTED, section
from backburner_apps.features.core.request import FeatureRequest
from backburner_apps.features.core.task import AsyncTaskHandler

SYSTEM = f"""You are a careers adviser who prepares candidates for applications.
Compare the candidate's CV with the job posting. Find requirements of the posting that
the CV does not show, or shows only weakly. For each gap write one open question whose
answer could close it: ask for concrete experience, numbers and results, and never for
something that the CV already says. Order the questions by how much a good answer would
raise the candidate's chances. Do not invent facts. Write in the posting's language.
{UNTRUSTED}"""

Impact = Literal["HIGH", "MEDIUM", "LOW"]


class GapRequest(FeatureRequest):
    """A CV, a posting, and the maximum number of questions."""

    max_questions: int = Field(5, ge=1, le=15)


class GapQuestion(BaseModel):
    """A question and the reason for it."""

    question: str = Field(min_length=1)
    requirement: str
    """The requirement of the posting that it is about."""
    evidence: str
    """What the CV says about it, or that it says nothing."""
    impact: Impact


class GapQuestions(BaseModel):
    """The answer of the model."""

    summary: str
    """How well the CV fits the posting, in two or three sentences."""
    questions: Annotated[list[GapQuestion], Field(min_length=1)]


class GapAnalysisResult(GapQuestions):
    """The result of the feature."""

    code: Literal["GAP_QUESTIONS_GENERATED"] = GAP_QUESTIONS_GENERATED


class GapAnalysis(AsyncTaskHandler[GapAnalysisResult]):
    """Asks about the gaps between a CV and a posting."""

    feature = "gap-analysis"
    request_model = GapRequest

    async def process(self, job_id: str, request: GapRequest) -> GapAnalysisResult:
        """Call the model for questions; return at most `max_questions` of them."""
        prompt = "\n\n".join(
            [
                section("job_posting", request.job_posting),
                section("cv", request.user_cv or ""),
                f"Write at most {request.max_questions} questions.",
            ]
        )
        found = await self.ask(
            prompt, into=GapQuestions, system=SYSTEM, example=lambda: _example(request)
        )
        kept = found.questions[: request.max_questions]
        return GapAnalysisResult(summary=found.summary, questions=kept)


def _example(request: GapRequest) -> GapQuestions:
    """Return the answer of the mock provider, by comparing words."""
    met, missing = compare(request.user_cv or "", request.job_posting)
    questions = [
        GapQuestion(
            question=f"What have you done with {gap}, and what came of it?",
            requirement=gap,
            evidence="The CV does not mention it.",
            impact="HIGH" if place < len(missing) / 2 else "MEDIUM",
        )
        for place, gap in enumerate(missing or met[:1])
    ]
    total = len(met) + len(missing)
    summary = f"The CV mentions {len(met)} of {total} requirements of the posting."
    return GapQuestions(summary=summary, questions=questions)
