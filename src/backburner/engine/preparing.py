"""Validates and prepares what transaction bodies submit."""

from collections.abc import Iterable, Mapping
from typing import Any

from backburner.domain.groups.batch import Members, NewBatch
from backburner.domain.groups.flow import NewFlow
from backburner.domain.jobs.job import NewJob, Owner
from backburner.engine.blobs.payloads import Payloads
from backburner.engine.flow import NOTHING, Chain, Flow, written
from backburner.engine.groups.batches import Batches
from backburner.engine.groups.flows import Flows
from backburner.engine.options import SubmitGroupOptions, SubmitOptions
from backburner.engine.submit.submission import Submission, group_options, job_options


class Preparation:
    """Prepares what a transaction body submits; large inputs go to blobs."""

    def __init__(
        self,
        submission: Submission,
        flows: Flows,
        batches: Batches,
        payloads: Payloads,
    ) -> None:
        self._submission = submission
        self._flows = flows
        self._batches = batches
        self._payloads = payloads

    def job(self, capability: Any, value: Any, given: SubmitOptions) -> NewJob:
        """Return a job."""
        options = job_options(given)
        job = self._submission.prepare(capability, value, options)
        return self._payloads.stow_input(job)

    def flow(
        self, flow: Flow | Chain, given: SubmitGroupOptions, value: Any = NOTHING
    ) -> NewFlow:
        """Return a flow, or a chain with its input."""
        new = self._flows.prepare(written(flow, value), group_options(given))
        return self._payloads.stow_members_inside(Members(flows=[new])).flows[0]

    def batch(
        self,
        jobs: Iterable[tuple[Any, Any]],
        flows: Iterable[Flow],
        given: SubmitGroupOptions,
        *,
        expected: int | None,
        completion: Mapping[str, Any] | None,
        sealed: bool | None,
    ) -> tuple[NewBatch, Members]:
        """Return a batch and its first members."""
        options = group_options(given)
        members = self._batches.gather(jobs, flows, options)
        batch = self._batches.prepare(
            options, members, expected=expected, completion=completion, sealed=sealed
        )
        return batch, self._payloads.stow_members_inside(members)

    def members(
        self,
        jobs: Iterable[tuple[Any, Any]],
        flows: Iterable[Flow],
        given: SubmitGroupOptions,
    ) -> tuple[Owner, Members]:
        """Return prepared members for a batch, and the owner it must have."""
        options = group_options(given)
        key = options.idempotency_key
        members = self._batches.gather(jobs, flows, options, key=key)
        return options.owner, self._payloads.stow_members_inside(members)
