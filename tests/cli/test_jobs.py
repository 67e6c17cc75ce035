"""The commands about jobs, against a real server: data on stdout, as lines or JSON."""

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backburner.client import Client


def the_lines_of(ended):
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.fixture
def dead(client):
    """A job that failed for good."""
    submitted = client.submit("demo.fail", {"error": "permanent"}, tags=["dead"])
    return client.wait(submitted["id"])


def test_submit_prints_the_id_alone(ask, client):
    given = ("--metadata", "order=A=7", "--metadata", "note=")
    ended = ask("submit", "demo.echo", '{"a": 1}', "--tag", "x", "--tag", "y", *given)
    job = client.wait(ended.stdout.strip())

    assert "" == ended.stderr
    assert {"a": 1} == job["output"]
    assert ["x", "y"] == job["tags"]
    assert {"order": "A=7", "note": ""} == job["metadata"]


def test_a_wait_for_a_job_that_no_worker_takes_says_how_to_start_one(serve, run):
    arguments = ("submit", "demo.echo", "--wait", "--timeout", "0", "--url")

    alone = run(*arguments, serve("--no-worker").url)
    helped = run(*arguments[:3], "--url", serve().url)

    said = (
        " is queued: No worker serves the queue 'demo'. "
        "Start one: `backburner worker --app MODULE:APP`\n"
    )
    assert 8 == alone.returncode
    assert 1 == alone.stderr.count(said)
    assert (0, "") == (helped.returncode, helped.stderr)


def test_a_job_that_waits_for_a_person_names_the_command_that_answers(serve, run):
    url = serve(BACKBURNER_APPS="backburner.demo:models").url
    asked = ("submit", "demo.report", '{"is_reviewed": true}', "--url", url)
    job = run(*asked).stdout.strip()
    with Client(url) as client:
        next(seen for seen in client.events(job) if seen["type"] == "job.waiting")
    (question,) = the_lines_of(run("questions", "--json", "--url", url))
    command = f"`backburner answer {job} {shlex.quote(question['name'])} JSON`"

    shown = run("status", job, "--url", url)
    as_json = run("status", job, "--json", "--url", url)
    waited = run("wait", job, "--timeout", "0", "--url", url)

    assert f"backburner: job {job} is waiting until " in shown.stderr
    assert f"It waits for a person to answer. Answer it: {command}\n" in shown.stderr
    assert "" == as_json.stderr
    assert (8, True) == (waited.returncode, command in waited.stderr)


def test_a_job_of_a_paused_queue_and_a_scheduled_one_name_what_helps(serve, run):
    url = serve().url
    run("queues", "pause", "demo", "--url", url)
    paused = run("submit", "demo.echo", "--url", url).stdout.strip()
    later = run("submit", "demo.echo", "--delay", "1h", "--url", url).stdout.strip()

    shown = run("status", paused, later, "--url", url)
    ended = run(
        *("submit", "demo.echo", "--wait", "--timeout", "0", "--json", "--url", url)
    )

    resume = "The queue 'demo' is paused. Resume it: `backburner queues resume demo`"
    assert f"backburner: job {paused} is queued: {resume}\n" in shown.stderr
    assert f"Start it: `backburner change {later} --now`\n" in shown.stderr
    assert (8, 1) == (ended.returncode, ended.stderr.count(resume))
    assert 1 == len(the_lines_of(ended))


def test_a_job_of_drained_workers_names_the_one_to_resume(serve, run):
    url = serve().url
    (worker,) = the_lines_of(run("workers", "list", "--json", "--url", url))
    run("workers", "drain", worker["id"], "--url", url)

    ended = run("submit", "demo.echo", "--wait", "--timeout", "0", "--url", url)

    assert f"Resume one: `backburner workers resume {worker['id']}`\n" in ended.stderr


def test_capabilities_are_listed_with_the_fields_of_their_inputs(ask, client):
    shown = ask("capabilities")
    told = the_lines_of(ask("capabilities", "--json"))
    rows = {line.split("\t")[0]: line.split("\t") for line in shown.stdout.splitlines()}

    assert ["demo.echo", "demo", "3", "object"] == rows["demo.echo"][:4]
    assert ["demo.sleep", "demo", "3", "seconds"] == rows["demo.sleep"][:4]
    assert {*rows} == {found["name"] for found in told}
    assert [*client.capabilities()] == told


def test_submit_reads_the_input_from_stdin_or_a_file(ask, tmp_path):
    tmp_path.joinpath("input.json").write_text('{"from": "file"}')

    piped = ask("submit", "demo.echo", "-", "--wait", given='{"from": "stdin"}')
    filed = ask("submit", "demo.echo", "--file", "input.json", "--wait")

    assert [{"from": "stdin"}] == the_lines_of(piped)
    assert [{"from": "file"}] == the_lines_of(filed)


def test_submit_passes_on_how_the_job_is_to_be_run(ask):
    ended = ask(
        *("submit", "demo.echo", "--queue", "demo", "--priority", "7"),
        *("--run-at", "2100-01-31T09:00:00+01:00", "--json"),
    )
    (job,) = the_lines_of(ended)

    assert ("demo", 7, "scheduled") == (job["queue"], job["priority"], job["state"])
    assert "2100-01-31T08:00:00.000Z" == job["run_at"]


def test_submit_passes_on_how_long_and_how_often_the_job_may_run(ask):
    ended = ask(
        *("submit", "demo.echo", "--max-attempts", "7", "--start-by", "1h"),
        *("--deadline", "2100-01-31T09:00:00+01:00", "--delay", "30m", "--json"),
    )
    refused = ask("submit", "demo.echo", "--key", "k", "--deadline", "5m")
    (job,) = the_lines_of(ended)

    assert (7, "2100-01-31T08:00:00.000Z") == (job["max_attempts"], job["deadline"])
    assert job["run_at"] < job["start_by"] < job["deadline"]
    assert 2 == refused.returncode
    assert "--deadline 5m cannot be combined with --key" in refused.stderr


def test_status_names_the_attempt_that_failed(ask, client):
    job = client.submit("demo.fail", {"times": 1}).wait()

    ended = ask("status", job["id"])

    assert ("succeeded", 2) == (job["state"], job["attempt"])
    assert f"attempt 1 of {job['id']} failed at:\n" in ended.stdout


def test_submit_names_the_job_that_follows(ask, client):
    completion = '{"capability": "demo.echo", "input": {"book": "red"}}'
    ended = ask("submit", "demo.echo", '{"a": 1}', "--completion", completion)
    job = client.wait(ended.stdout.strip())
    (after,) = client.jobs(tag=f"completion:{job['id']}")

    told = client.wait(after["id"])["output"]
    assert ("red", job["id"], {"a": 1}) == (
        told["book"],
        told["job"]["id"],
        told["job"]["output"],
    )


def test_a_completion_that_is_no_object_is_refused(run):
    ended = run("submit", "demo.echo", "{}", "--completion", "[]")

    assert 2 == ended.returncode
    assert "--completion must be an object" in ended.stderr


def test_a_delayed_job_is_scheduled(ask):
    (job,) = the_lines_of(ask("submit", "demo.echo", "--delay", "1h", "--json"))

    assert "scheduled" == job["state"]


def test_submit_and_wait_gives_the_whole_job_as_json(ask):
    (job,) = the_lines_of(ask("submit", "demo.echo", "{}", "--wait", "--json"))

    assert ("succeeded", {}) == (job["state"], job["output"])


def test_status_has_a_line_for_each_job(ask, client):
    ids = [client.wait(client.submit("demo.echo", {})["id"])["id"] for _ in range(2)]

    plain = ask("status", *ids)
    as_json = ask("status", *ids, "--json")

    assert [[i, "succeeded"] for i in ids] == [
        line.split("\t")[:2] for line in plain.stdout.splitlines()
    ]
    assert ids == [job["id"] for job in the_lines_of(as_json)]


def test_status_names_the_ids_that_are_unknown_and_shows_the_others(ask, client):
    job = client.submit("demo.echo", {}).wait()

    ended = ask("status", "job_none", job["id"], "job_gone")

    assert 3 == ended.returncode
    assert [job["id"]] == [row.split("\t")[0] for row in ended.stdout.splitlines()]
    assert ["job_none", "job_gone"] == [
        line.split(": ")[1] for line in ended.stderr.splitlines()
    ]
    assert 2 == ended.stderr.count("the job does not exist")


def test_a_fingerprint_shows_the_newest_job_of_its_cause(ask, client, dead):
    group = next(one for one in client.failures() if one["sample_id"] == dead["id"])

    by_id = ask("dead-letters", "show", dead["id"])
    by_cause = ask("dead-letters", "show", group["fingerprint"])

    assert (0, by_id.stdout) == (by_cause.returncode, by_cause.stdout)


def test_wait_says_how_a_job_ended(ask, client, dead):
    good = client.submit("demo.sleep", {"seconds": 0.1})

    succeeded = ask("wait", good["id"])
    failed = ask("wait", dead["id"], "--json")

    assert (0, "succeeded\n") == (succeeded.returncode, succeeded.stdout)
    assert (1, "failed") == (failed.returncode, the_lines_of(failed)[0]["state"])


def test_watch_tells_the_whole_story_in_order(ask, client):
    job = client.submit("demo.sleep", {"seconds": 0.5})

    events = the_lines_of(ask("watch", job["id"], "--json"))

    assert list(range(1, len(events) + 1)) == [event["n"] for event in events]
    assert ["job.queued", "job.started"] == [event["type"] for event in events[:2]]
    assert "job.progress" in {event["type"] for event in events}
    assert "job.succeeded" == events[-1]["type"]


def test_watching_a_job_that_fails_ends_with_1(ask, dead):
    ended = ask("watch", dead["id"])

    assert 1 == ended.returncode
    assert "job.failed  PERMANENT: failed on purpose" in ended.stdout


def test_result_prints_the_bare_output(ask, client):
    job = client.wait(client.submit("demo.echo", {"text": "grüße"})["id"])

    ended = ask("result", job["id"])

    assert '{"text": "grüße"}\n' == ended.stdout


def test_there_is_no_result_before_the_end_nor_after_a_failure(ask, client, dead):
    waiting = client.submit("demo.echo", {}, run_at="2100-01-31T09:00:00Z")

    early = ask("result", waiting["id"])
    failed = ask("result", dead["id"])

    assert (5, "") == (early.returncode, early.stdout)
    assert "backburner wait" in early.stderr
    assert (1, "") == (failed.returncode, failed.stdout)


def test_cancel_ends_a_job_and_may_be_said_twice(ask, client):
    job = client.submit("demo.sleep", {"seconds": 60})

    first = ask("cancel", job["id"])
    second = ask("cancel", job["id"], "--json")

    assert (0, "cancelled\n") == (first.returncode, first.stdout)
    assert (0, "cancelled") == (second.returncode, the_lines_of(second)[0]["state"])


def test_jobs_are_filtered_and_limited(ask, client):
    ids = [client.submit("demo.echo", {}, tags=["listed"])["id"] for _ in range(3)]

    tagged = ask("jobs", "--tag", "listed", "--since", "1h", "--json")
    limited = ask("jobs", "--tag", "listed", "--limit", "2")
    none = ask("jobs", "--tag", "listed", "--since", "2100-01-31T09:00:00Z")

    assert ids[::-1] == [job["id"] for job in the_lines_of(tagged)]
    assert ids[:0:-1] == [line.split("\t")[0] for line in limited.stdout.splitlines()]
    assert "" == none.stdout


def test_jobs_are_found_by_metadata(ask, client):
    odd = {"order": "B = 7", "a name": 'ж "🎶"'}
    job = client.submit("demo.echo", {}, metadata={**odd, "more": ""})
    client.submit("demo.echo", {}, metadata={"order": "B = 7"})
    options = [f"--metadata={name}={text}" for name, text in odd.items()]

    found = ask("jobs", *options, "--json")
    wrong = ask("jobs", "--metadata", "order")

    assert [job["id"]] == [one["id"] for one in the_lines_of(found)]
    assert [job["id"]] == [one["id"] for one in client.jobs(metadata=odd)]
    assert (2, "--metadata: write NAME=TEXT") == (
        *(wrong.returncode, wrong.stderr.splitlines()[-1][-27:]),
    )


def test_dead_letters_are_listed_explained_and_retried(ask, client, dead):
    listed = ask("dead-letters", "list")
    groups = the_lines_of(ask("dead-letters", "list", "--json"))
    shown = ask("dead-letters", "show", dead["id"])
    as_json = the_lines_of(ask("dead-letters", "show", dead["id"], "--json"))
    where = ask("status", dead["id"])
    retried = ask("dead-letters", "retry", dead["id"])

    assert "PERMANENT" in listed.stdout
    assert "in fail\n    raise PermanentError(message)" in shown.stdout
    assert "in fail\n    raise PermanentError(message)" in where.stdout
    assert "demo.fail" in {group["capability"] for group in groups}
    assert "PERMANENT: failed on purpose, 1 of 1" in shown.stdout
    assert [dead["id"]] == [job["id"] for job in as_json]
    assert 0 == retried.returncode
    assert 1 == client.get(dead["id"])["generation"]


def test_many_dead_letters_are_retried_after_a_dry_run(ask, dead):
    which = ("--capability", dead["capability"], "--limit", "1")

    dry = ask("dead-letters", "retry", "--all", *which, "--dry-run", "--json")
    plain = ask("dead-letters", "retry", "--all", *which, "--dry-run")
    paced = ("--canary", "1", "--rate", "5")
    done = ask("dead-letters", "retry", "--all", *which, *paced)

    [counted] = the_lines_of(dry)
    matched = counted["matched"]  # the other tests leave dead letters, too
    assert matched >= 1
    assert {
        "matched": matched,
        "retried": 0,
        "remaining": matched,
        "dry_run": True,
    } == counted
    assert f"1 of {matched} queued again\n" == done.stdout
    assert plain.stdout.startswith(f"{matched} match")
    assert plain.stdout.endswith("; nothing was queued\n")


def test_what_did_not_fail_is_no_dead_letter(ask, client):
    job = client.wait(client.submit("demo.echo", {})["id"])

    shown = ask("dead-letters", "show", job["id"])
    retried = ask("dead-letters", "retry", job["id"])

    assert (5, 5) == (shown.returncode, retried.returncode)
    assert "only a failed job can be retried" in retried.stderr


def test_a_failed_job_is_retried_by_its_id(ask, client, dead):
    retried = ask("retry", dead["id"], "--json")
    again = ask("retry", client.submit("demo.echo", {}).wait()["id"])

    assert [1] == [job["generation"] for job in the_lines_of(retried)]
    assert 5 == again.returncode


def test_a_fork_prints_the_id_of_the_new_job(ask, client):
    job = client.submit("demo.echo", {"a": 1}).wait()

    forked = ask("fork", job["id"], "--from", "1")
    ended = client.wait(forked.stdout.strip())

    assert (job["id"], {"a": 1}) == (ended["forked_from"], ended["output"])


def test_a_dry_run_of_a_fork_says_what_it_would_reuse(run, answering):
    named = {"reused": ["ask"] * 2, "quote": {"tokens": 105}}
    arguments = ("fork", "job_1", "--from", "3", "--dry-run", "--url")

    def dry(told, *more):
        return run(*arguments, answering(200, told, "application/json"), *more).stdout

    assert "reuses 2 steps: 1 ask, 2 ask; runs from step 3; about 105 tokens\n" == dry(
        named
    )
    assert "reuses 1 step: 1 ask; runs from step 2\n" == dry(
        {"reused": ["ask"], "quote": {"tokens": None}}
    )
    assert "reuses 0 steps; runs from step 1; about 7 tokens\n" == dry(
        {"reused": [], "quote": {"tokens": 7}}
    )
    many = dry({"reused": ["ask"] * 11, "quote": {"tokens": 7}})
    assert "reuses 11 steps: 1 ask, 2 ask" in many
    assert "10 ask, …; runs from step 12" in many
    assert named == json.loads(dry(named, "--json"))


def test_watch_without_an_id_follows_everything(client, url, start):
    first = client.submit("demo.echo", {}).wait()
    watching = start("watch", "--after", "0", BACKBURNER_URL=url)
    watching.says(first["id"])
    second = client.submit("demo.echo", {}).wait()

    line = watching.says(second["id"])

    assert "job.queued" in line
    assert 130 == watching.told(signal.SIGINT).exit_code()


@pytest.mark.parametrize("option", [("--after", "7"), ("--topic", "files")])
def test_only_everything_is_watched_from_a_place_on_or_by_topic(ask, option):
    ended = ask("watch", "job_1", *option)

    assert 2 == ended.returncode


def test_what_is_no_topic_is_not_watched(ask):
    ended = ask("watch", "--topic", "two words")

    assert 2 == ended.returncode
    assert "topic" in ended.stderr


def test_the_key_goes_along_as_an_option_or_a_setting(run, cutter):
    run("jobs", "--tag", "none", "--url", cutter.url, "--api-key", "from-an-option")
    run(
        "jobs", "--tag", "none", "--url", cutter.url, BACKBURNER_API_KEY="from-settings"
    )

    assert b"authorization: bearer from-an-option" in cutter.requests[0].lower()
    assert b"authorization: bearer from-settings" in cutter.requests[-1].lower()


@pytest.mark.thorough
def test_the_shell_completes_commands(tmp_path):
    ended = subprocess.run(
        [Path(sys.executable).with_name("backburner")],
        cwd=tmp_path,
        env={
            "COMP_WORDS": "backburner dead",
            "COMP_CWORD": "1",
            "_BACKBURNER_COMPLETE": "complete_bash",
        },
        capture_output=True,
        text=True,
        check=True,
    )

    assert "dead-letters\n" == ended.stdout
