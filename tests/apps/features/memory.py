"""A deployment in memory: what `core` asks of one, in a few lines."""

import json
from collections import Counter
from datetime import UTC, datetime

from backburner_apps.features.core.errors import ValidationFailed
from backburner_apps.features.core.ports import Deployment
from backburner_apps.features.core.records import JobStatus
from backburner_apps.features.core.result import Result, ResultCode

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


class Memory:
    """Records, requests, results, files, counts and a model, all in one."""

    def __init__(self, ask=None):
        self.records, self.requests, self.results = {}, {}, {}
        self.files = {}
        self.counts = Counter()
        self._ask = ask

    async def create_job(self, record, request):
        self.records[record.job_id] = record
        self.requests[record.job_id] = request
        return Result.of(record)

    async def update_job_status(self, job_id, status, **fields):
        record = self.records.get(job_id)
        if record is None:
            return Result.failed(ResultCode.NOT_FOUND, "no such job")
        if not record.status.may_become(status):
            return Result.failed(ResultCode.CONFLICT, f"it is {record.status}")
        changed = record.model_copy(update={"status": status, **fields})
        self.records[job_id] = changed
        return Result.of(changed)

    async def get_job(self, job_id):
        record = self.records.get(job_id)
        missing = Result.failed(ResultCode.NOT_FOUND, "no such job")
        return missing if record is None else Result.of(record)

    async def get_request(self, job_id):
        return Result.of(self.requests[job_id])

    async def get_user_jobs(self, user, feature=None):
        found = [r for r in self.records.values() if r.user_id == user]
        return Result.of([r for r in found if feature in {None, r.feature}])

    async def find(self, record):
        return record.job_id if record.job_id in self.results else None

    async def write(self, record, content):
        self.results[record.job_id] = content
        return record.job_id

    async def sign(self, record):
        is_there = record.job_id in self.results
        return f"https://results.example/{record.job_id}" if is_there else None

    async def check(self, user_id, key):
        if (user_id, key) not in self.files:
            raise ValidationFailed("no such file")

    async def read_text(self, user_id, key):
        return self.files[user_id, key]

    async def ask(self, prompt, *, into, system, example):
        if self._ask is None:
            return example()
        return await self._ask(prompt, into=into, system=system)

    def submitted(self, _record):
        self.counts["submitted"] += 1

    def ended(self, record):
        self.counts[record.status] += 1

    def processed(self, _feature, _seconds):
        self.counts["processed"] += 1

    def asked(self, _feature, _seconds):
        self.counts["asked"] += 1

    def result(self, job_id):
        """Return a stored result."""
        return json.loads(self.results[job_id])

    def status(self, job_id) -> JobStatus:
        return self.records[job_id].status


def in_memory(memory=None, **more):
    """Return a deployment over memory."""
    memory = memory or Memory()
    return Deployment(
        jobs=memory,
        results=memory,
        meter=memory,
        now=lambda: NOON,
        model=memory,
        files=memory,
        **more,
    )
