"""`interview-prep`: questions that an interviewer may ask, and how to answer them."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from backburner_apps.features.core.keywords import compare, sentence_with
from backburner_apps.features.core.prompting import UNTRUSTED, section
from backburner_apps.features.core.request import FeatureRequest
from backburner_apps.features.core.task import AsyncTaskHandler

SYSTEM = f"""You are an experienced interviewer who coaches candidates.
Predict what an interviewer for this posting will ask this candidate: about requirements
of the posting, about claims in the CV that need proof, and about gaps between the two.
For each question say why it is asked and outline a good answer from the candidate's own
experience (situation, task, action, result). Then list questions that the candidate
should ask. Do not invent experience that the CV does not show. Write in the language of
the posting.
{UNTRUSTED}"""

Kind = Literal["screening", "technical", "behavioural", "panel"]


class InterviewRequest(FeatureRequest):
    """A CV, a posting, the kind of interview and how many questions to prepare."""

    interview_type: Kind = "technical"
    max_questions: int = Field(8, ge=1, le=20)


class InterviewQuestion(BaseModel):
    """A question, why it is asked, and the outline of an answer."""

    question: str = Field(min_length=1)
    reason: str
    answer_outline: str


class InterviewPreparation(BaseModel):
    """The result of the feature."""

    questions: Annotated[list[InterviewQuestion], Field(min_length=1)]
    questions_to_ask: list[str]
    advice: list[str]


class InterviewPrep(AsyncTaskHandler[InterviewPreparation]):
    """Prepares a candidate for an interview."""

    feature = "interview-prep"
    request_model = InterviewRequest

    async def process(
        self, job_id: str, request: InterviewRequest
    ) -> InterviewPreparation:
        """Call the model for questions; return at most `max_questions` of them."""
        instruction = f"Prepare for this interview: {request.interview_type}."
        most = f"Write at most {request.max_questions} questions."
        posting = section("job_posting", request.job_posting)
        prompt = "\n\n".join(
            [posting, section("cv", request.user_cv or ""), instruction, most]
        )
        found = await self.ask(
            prompt,
            into=InterviewPreparation,
            system=SYSTEM,
            example=lambda: _example(request),
        )
        kept = found.questions[: request.max_questions]
        return found.model_copy(update={"questions": kept})


def _example(request: InterviewRequest) -> InterviewPreparation:
    """Return the answer of the mock provider, by comparing words."""
    cv = request.user_cv or ""
    met, missing = compare(cv, request.job_posting)
    proof = [
        InterviewQuestion(
            question=f"Tell me about your work with {one}.",
            reason="The posting asks for it and the CV mentions it.",
            answer_outline=f"Start from: {sentence_with(cv, one)}",
        )
        for one in met
    ]
    gaps = [
        InterviewQuestion(
            question=f"How would you approach {one}?",
            reason="The posting asks for it and the CV does not mention it.",
            answer_outline="Name the closest thing you have done, then how you learn.",
        )
        for one in missing
    ]
    return InterviewPreparation(
        questions=[*proof, *gaps],
        questions_to_ask=["What should the new colleague achieve in the first year?"],
        advice=[f"Prepare an example for: {one}" for one in missing[:3]],
    )
