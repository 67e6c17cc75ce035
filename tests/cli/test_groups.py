"""The commands about flows and batches, against a real server."""

import json

import pytest

ECHO = {"capability": "demo.echo", "input": {}}
BAD = {"capability": "demo.fail", "input": {"error": "permanent"}}
CHAIN = {
    "steps": [
        {"name": "first", "capability": "demo.echo", "input": {"a": 1}},
        {"name": "second", "capability": "demo.echo", "needs": ["first"]},
    ],
    "tags": ["from a file"],
}
LATER = {**ECHO, "run_at": "2100-01-31T09:00:00Z"}


def the_lines_of(ended):
    return [json.loads(line) for line in ended.stdout.splitlines()]


def the_rows_of(ended):
    return [line.split("\t") for line in ended.stdout.splitlines()]


@pytest.fixture
def broken(client):
    """A flow that failed, and somebody who waited for the step that did."""
    steps = [
        {"name": "bad", **BAD},
        {"name": "after", "capability": "demo.echo", "needs": ["bad"]},
    ]
    flow = client.submit_flow(steps)
    flow.wait()
    return flow


def test_a_flow_is_submitted_from_a_file_or_stdin(ask, client, tmp_path):
    tmp_path.joinpath("flow.json").write_text(json.dumps(CHAIN))

    filed = ask("flows", "submit", "flow.json")
    waited = ask("flows", "submit", "-", "--wait", given=json.dumps(CHAIN))
    again = [
        the_lines_of(ask("flows", "submit", "flow.json", "--key", "k", "--json"))[0]
        for _ in range(2)
    ]
    flow = client.flow(filed.stdout.strip())

    assert ("", ["from a file"]) == (filed.stderr, flow.flow["tags"])
    assert {"first": {"a": 1}, "second": {"a": 1}} == flow.results()
    assert 0 == waited.returncode
    assert [
        ["first", "succeeded", "demo.echo", "1/3", ""],
        ["second", "succeeded", "demo.echo", "1/3", "first"],
    ] == [row[:5] for row in the_rows_of(waited)]
    assert again[0]["id"] == again[1]["id"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{", "not JSON"),
        ("[]", "must be an object"),
        ('{"steps": [], "key": "x"}', "no such field: 'key'"),
        ('{"steps": [{"name": "a", "capability": "demo.ecko"}]}', "demo.echo"),
    ],
)
def test_a_flow_that_cannot_be_is_not_submitted(ask, given, told):
    ended = ask("flows", "submit", "-", given=given)

    assert ended.returncode in {2, 3}
    assert told in ended.stderr


def test_a_file_that_is_not_there_is_wrong_usage(ask):
    ended = ask("flows", "submit", "nowhere.json")

    assert (2, True) == (ended.returncode, "nowhere.json" in ended.stderr)


def test_a_failed_flow_is_shown_waited_for_and_watched(ask, broken):
    shown = ask("flows", "show", broken.id)
    as_json = the_lines_of(ask("flows", "show", broken.id, "--json"))
    waited = ask("wait", broken.id)
    watched = ask("watch", broken.id)
    events = the_lines_of(ask("watch", broken.id, "--json"))

    assert [["bad", "failed"], ["after", "cancelled"]] == [
        row[:2] for row in the_rows_of(shown)
    ]
    assert "PERMANENT: failed on purpose" in shown.stdout
    assert f"{broken.id} failed: 1 failed, 1 cancelled" in shown.stderr
    assert [broken.flow] == as_json
    assert (1, "failed\n") == (waited.returncode, waited.stdout)
    assert 1 == watched.returncode
    assert "  after  job.cancelled  DEPENDENCY_FAILED" in watched.stdout
    assert ["flow.started", "flow.failed"] == [events[0]["type"], events[-1]["type"]]


def test_a_failed_flow_is_retried_and_goes_on(ask, broken):
    retried = ask("flows", "retry", broken.id)
    waited = ask("wait", broken.id, "--json")
    again = ask("flows", "retry", broken.id)

    assert 0 == retried.returncode
    assert retried.stdout in ("running\n", "succeeded\n")  # it may have ended since
    assert ("succeeded", 1) == (
        the_lines_of(waited)[0]["state"],
        the_lines_of(waited)[0]["generation"],
    )
    assert 5 == again.returncode


def test_a_flow_that_goes_on_is_cancelled_and_may_be_so_twice(ask, client):
    flow = client.submit_flow([{"name": "later", **LATER}])

    early = ask("wait", flow.id, "--timeout", "0")
    first = ask("flows", "cancel", flow.id)
    second = ask("flows", "cancel", flow.id, "--json")

    assert 8 == early.returncode
    assert (0, "cancelled\n") == (first.returncode, first.stdout)
    assert "cancelled" == the_lines_of(second)[0]["state"]


def test_flows_are_listed_and_their_jobs_tell_where_they_belong(ask, client):
    flows = [
        client.submit_flow([{"name": "only", **ECHO}], tags=["listed"])
        for _ in range(3)
    ]
    flows[-1].wait()

    listed = ask("flows", "list", "--tag", "listed", "--limit", "2")
    as_json = the_lines_of(ask("flows", "list", "--tag", "listed", "--json"))
    jobs = ask("jobs", "--flow", flows[-1].id)
    status = ask("status", flows[-1].steps["only"]["id"])

    ids = [flow.id for flow in reversed(flows)]
    assert ids[:2] == [row[0] for row in the_rows_of(listed)]
    assert ids == [flow["id"] for flow in as_json]
    assert [["only", ids[0]]] == [row[-2:] for row in the_rows_of(jobs)]
    assert the_rows_of(jobs) == the_rows_of(status)


def test_a_batch_is_shown_retried_and_cancelled(ask, client):
    batch = client.open_batch([ECHO, BAD], [CHAIN], tags=["of three"])
    batch.wait()

    shown = ask("batches", "show", batch.id)
    listed = ask("batches", "list", "--tag", "of three", "--state", "finished")
    failed = ask("wait", batch.id)
    retried = ask("batches", "retry", batch.id)
    succeeded = ask("wait", batch.id, "--json")
    watched = ask("watch", batch.id)
    cancelled = ask("batches", "cancel", batch.id, "--json")
    jobs = ask("jobs", "--batch", batch.id)

    assert [["failed", "1", "1"], ["succeeded", "2", "3"]] == the_rows_of(shown)
    assert f"{batch.id} finished: 3 of 3 done" in shown.stderr
    assert [[batch.id, "finished", "3"]] == [row[:3] for row in the_rows_of(listed)]
    assert 1 == failed.returncode
    assert "1 queued again\n" == retried.stdout
    assert 0 == succeeded.returncode
    assert {"succeeded": 3} == the_lines_of(succeeded)[0]["counts"]["members"]
    assert (0, True) == (watched.returncode, "batch.reopened" in watched.stdout)
    assert 0 == cancelled.returncode
    assert 4 == len(the_rows_of(jobs))


def test_a_batch_that_waits_for_more_says_so(ask, client):
    batch = client.open_batch([ECHO], sealed=False)
    expecting = client.open_batch(expected=7)

    shown = ask("batches", "show", batch.id)
    as_json = the_lines_of(ask("batches", "show", expecting.id, "--json"))
    empty = ask("batches", "show", expecting.id)

    assert "more may be added" in shown.stderr
    assert (7, 0) == (as_json[0]["expected"], as_json[0]["counts"]["total"])
    assert "0 of 7 done" in empty.stderr
    batch.add(seal=True)
    expecting.cancel()
    assert ("finished", "finished") == (
        batch.wait()["state"],
        expecting.wait()["state"],
    )


@pytest.mark.parametrize("command", ["status", "cancel"])
def test_a_flow_that_is_taken_for_a_job_leads_to_its_commands(ask, command):
    ended = ask(command, "flow_1")

    assert 2 == ended.returncode
    assert "see `backburner flows --help`" in ended.stderr


@pytest.mark.parametrize(
    "asked", [("flows", "show"), ("flows", "cancel"), ("batches", "retry")]
)
def test_what_is_not_there_is_not_found(ask, asked):
    assert 3 == ask(*asked, "nothing").returncode
