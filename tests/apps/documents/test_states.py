"""How the events of jobs move files, without a database."""

import pytest

from backburner_apps.documents import states
from backburner_apps.documents.shapes import md5_digits

SEQUENCE = [
    ("extracting", "job.started"),
    ("extracting", "job.succeeded"),
    ("chunking", "job.started"),
    ("chunking", "job.succeeded"),
    ("embedding", "job.started"),
    ("embedding", "job.succeeded"),
]
RETRY = {"generation": 1}


def test_a_file_goes_through_its_stages_in_order():
    status, path = "queued", []
    for stage, event in SEQUENCE:
        status = states.moved(status, stage, event, {}) or status
        path.append(status)
    assert path == ["extracting", *["chunking"] * 2, *["embedding"] * 2, "ready"]


@pytest.mark.parametrize("status", ["queued", "extracting", "chunking", "embedding"])
@pytest.mark.parametrize("event", ["job.failed", "job.cancelled"])
def test_whatever_ends_a_stage_fails_the_file(status, event):
    assert states.moved(status, "chunking", event, {}) == "failed"


@pytest.mark.parametrize("status", ["ready", "failed", "pending_upload", "uploaded"])
@pytest.mark.parametrize(
    "event", ["job.started", "job.succeeded", "job.failed", "job.cancelled"]
)
def test_a_file_that_has_ended_or_is_not_confirmed_is_not_moved(status, event):
    assert states.moved(status, "extracting", event, {}) is None


@pytest.mark.parametrize(
    ("stage", "status"),
    [
        ("extracting", "queued"),
        ("chunking", "chunking"),
        ("embedding", "embedding"),
    ],
)
@pytest.mark.parametrize("event", ["job.queued", "job.scheduled"])
def test_a_retry_resumes_at_the_stage_that_failed(stage, status, event):
    assert states.moved("failed", stage, event, RETRY) == status


def test_a_job_that_is_queued_again_without_a_retry_moves_nothing():
    assert states.moved("failed", "chunking", "job.queued", {}) is None
    assert states.moved("chunking", "chunking", "job.queued", RETRY) is None


def test_a_retry_or_a_stall_within_a_stage_leaves_the_state():
    for event in ("job.retrying", "job.stalled", "job.progress"):
        assert states.moved("chunking", "chunking", event, {}) is None


@pytest.mark.parametrize("name", [None, "", "other", "extract:", "report:file_1"])
def test_other_jobs_are_no_steps_of_files(name):
    assert states.step_of(name) is None


def test_a_step_is_known_by_its_name():
    assert states.step_of("chunk:file_1") == ("chunking", "file_1")
    assert states.step_name("extract", "file_1") == "extract:file_1"


@pytest.mark.parametrize(
    "written",
    [
        "d41d8cd98f00b204e9800998ecf8427e",
        "D41D8CD98F00B204E9800998ECF8427E",
        "1B2M2Y8AsgTpgAmY7PhCfg==",
    ],
)
def test_an_md5_is_read_as_digits_and_as_base64(written):
    assert md5_digits(written) == "d41d8cd98f00b204e9800998ecf8427e"


@pytest.mark.parametrize("written", ["", "abc", "zz" * 16, "AAAA", "=" * 24])
def test_what_is_no_md5_is_refused_with_the_command_that_prints_one(written):
    with pytest.raises(ValueError, match="md5sum FILE"):
        md5_digits(written)
