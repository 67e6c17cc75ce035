"""The findings of `doctor` over HTTP, collected beside the requests."""

import asyncio

from backburner.http.examination import FRESH_SECONDS, Examination
from backburner.ports.finding import Finding, Status
from backburner.testing.broker.acts import pause


class Doctor:
    """An examination that lasts until it may end."""

    def __init__(self):
        self.begun = 0
        self.may_end = asyncio.Event()

    async def __call__(self):
        self.begun += 1
        yield Finding(Status.PASS, "store", f"examination {self.begun}")
        await self.may_end.wait()


async def ended(examination):
    """Return the report when nothing is being collected."""
    async with asyncio.timeout(60):
        while (report := await examination.report()).is_running:
            await pause()
    return report


async def test_nobody_waits_for_an_examination_that_takes_long():
    doctor = Doctor()
    examination = Examination(doctor, lambda: 7)
    reports = await asyncio.gather(*(examination.report() for _ in range(3)))

    assert [(None, (), True)] * 3 == reports
    doctor.may_end.set()
    report = await ended(examination)
    assert (7, ["examination 1"]) == (report.at, [f.message for f in report.findings])
    assert 1 == doctor.begun


async def test_the_former_findings_are_given_while_newer_ones_are_collected():
    doctor = Doctor()
    doctor.may_end.set()
    examination = Examination(doctor, lambda: 7)
    await ended(examination)
    doctor.may_end.clear()
    examination._asked_at -= FRESH_SECONDS
    report = await examination.report()

    assert (7, True) == (report.at, report.is_running)
    assert ["examination 1"] == [finding.message for finding in report.findings]
    doctor.may_end.set()
    report = await ended(examination)
    assert ["examination 2"] == [finding.message for finding in report.findings]


async def test_an_examination_that_is_quick_is_in_the_first_answer():
    doctor = Doctor()
    doctor.may_end.set()
    report = await Examination(doctor, lambda: 7).report()

    assert (7, 1, False) == (report.at, len(report.findings), report.is_running)
