"""`demo`: what it prints can be done, and sample jobs move."""

import re
import shlex
import signal

import httpx2
import pytest
import sqlalchemy as sa

from backburner.client import Client
from backburner.stores import migrations

EARLIER = "0027"
"""A schema of an earlier release."""


@pytest.fixture
def demo(start):
    process = start("demo", "--port", "0")
    process.says("Press Ctrl-C to stop")
    return process


@pytest.fixture
def words(demo):
    return "".join(demo.lines).replace("\\\n", "")


def the_request_of(command):
    """Read a curl command line as method, URL, header and body."""
    _, _, url, _, header, _, body = shlex.split(command)
    return "POST", url, dict([header.split(": ")]), body


def test_the_printed_commands_submit_a_job_and_poll_its_result(words, run, tmp_path):
    posting, polling, *_ = re.findall(r"^ *(curl .*)$", words, re.MULTILINE)
    command = re.search(r"backburner (submit .*)$", words, re.MULTILINE)[1]
    method, url, headers, body = the_request_of(posting)

    accepted = httpx2.request(method, url, headers=headers, content=body)
    place = shlex.split(polling)[1].replace("ID", accepted.json()["id"])
    ended = httpx2.get(place, headers={"Prefer": "wait=30"}, timeout=60)
    by_command = run(*shlex.split(command))

    assert 202 == accepted.status_code
    assert ("succeeded", {"slept": 3.0}) == (
        ended.json()["state"],
        ended.json()["output"],
    )
    assert '{"slept": 3.0}\n' == by_command.stdout
    assert tmp_path.joinpath(".backburner", "demo.db").exists()


def test_the_store_of_an_earlier_release_is_brought_up_to_date(start, run, tmp_path):
    """*Before: the demo refused to start until somebody found its store.*"""
    file = tmp_path / ".backburner" / "demo.db"
    file.parent.mkdir()
    run("migrate", "--store", f"sqlite:///{file}")
    engine = sa.create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        migrations.downgrade(connection, EARLIER)
    engine.dispose()

    start("demo", "--port", "0").says("Press Ctrl-C to stop")

    checked = run("migrate", "--check", "--store", f"sqlite:///{file}")
    assert 0 == checked.returncode


def test_commands_of_an_application_that_is_left_out_are_not_printed(start, tmp_path):
    tmp_path.joinpath("sitecustomize.py").write_text(
        "import sys\nsys.modules['numpy'] = None  # as if it were not installed\n"
    )

    process = start("demo", "--port", "0", PYTHONPATH=str(tmp_path))
    process.says("Press Ctrl-C to stop")

    told = "".join(process.lines)
    assert 'pip install "backburner[documents]"' in told
    assert "/api/v2/" not in told


def jobs_of(process, capability):
    """Return the jobs of a capability that a demo has submitted."""
    url = re.search(r"ready at (\S+)", "".join(process.lines))[1]
    wanted = {"capability": capability, "limit": 200}
    return httpx2.get(f"{url}/v1/jobs", params=wanted).json()["items"]


@pytest.mark.parametrize("setting", ["BACKBURNER_AI", "BACKBURNER_AI_TEXT"])
def test_samples_call_no_provider_that_somebody_configured(start, setting):
    process = start(
        *("demo", "--port", "0"),
        **{setting: "openai"},
        OPENAI_API_KEY="a-key",
        OPENAI_BASE_URL="http://127.0.0.1:9/v1",
    )
    process.says("Press Ctrl-C to stop")
    while not jobs_of(process, "demo.fail"):  # the next sample after demo.report
        pass

    assert [] == jobs_of(process, "demo.report")


def test_the_question_is_asked_once_though_samples_of_an_application_fail(
    start, tmp_path
):
    tmp_path.joinpath("failing.py").write_text(
        "from backburner import App\n"
        "tries = iter([OSError(), OSError(), None])\n"
        "async def make(backburner):\n"
        "    if error := next(tries):\n"
        "        raise error\n"
        "app = App('failing', samples=make)\n"
    )

    process = start("demo", "--port", "0", "--app", "failing:app")
    process.says("Press Ctrl-C to stop")

    url = re.search(r"ready at (\S+)", "".join(process.lines))[1]
    inputs = [
        httpx2.get(f"{url}/v1/jobs/{job['id']}").json()["input"]
        for job in jobs_of(process, "demo.report")
    ]
    assert 1 == len([value for value in inputs if value.get("is_reviewed")])


def test_the_printed_commands_make_a_task_of_a_sentence_and_show_it(words):
    creating, listing = re.findall(r"^ *(curl .*/api/v1/tasks.*)$", words, re.MULTILINE)
    method, url, headers, body = the_request_of(creating)
    base = url.removesuffix("/api/v1/tasks")

    accepted = httpx2.request(method, url, headers=headers, content=body)
    place = accepted.headers["location"]
    while httpx2.get(f"{base}{place}").json()["status"] in {"queued", "running"}:
        pass
    [task] = httpx2.get(shlex.split(listing)[1]).json()["items"]

    assert 202 == accepted.status_code
    assert ("Pack", "urgent") == (task["title"], task["priority"])
    assert ["Passport", "Charger", "Shoes"] == [s["title"] for s in task["subtasks"]]


def test_the_printed_command_has_a_message_answered(words):
    asking = re.search(r"(curl -i \S+/ai/generate .*?\}')", words, re.DOTALL)[1]
    _, _, url, _, body = shlex.split(asking)

    answered = httpx2.post(url, content=body, timeout=60)

    assert 200 == answered.status_code, answered.text
    assert "Mock answer to: My dog is called Rex." == answered.json()["content"]


def test_the_printed_commands_write_to_a_bot_and_show_its_reply(words):
    writing = re.search(r"(curl \S+/telegram/webhook -d .*?\}')", words, re.DOTALL)[1]
    showing = re.search(r"curl \S+/inbox/outbox", words)[0]
    _, url, _, body = shlex.split(writing)

    taken = httpx2.post(url, content=body)
    while not (replies := httpx2.get(shlex.split(showing)[1]).json()["items"]):
        pass
    page = re.search(r"page (\S+) also shows the reply", words)[1]

    assert 200 == taken.status_code
    assert replies[0]["text"].startswith("✅ Task created\n\n1. <b>Pack</b> ⏰ ")
    assert "outbox.js" in httpx2.get(page).text


def test_the_printed_commands_find_the_gaps_of_a_cv(words):
    sending = re.search(r"(curl -i \S+/submit -d .*?\}')", words, re.DOTALL)[1]
    _, _, url, _, body = shlex.split(sending)
    polling = re.search(r"curl (\S+/status/)JOB_ID", words)[1]

    sent = httpx2.post(url, content=body)
    place = polling + sent.json()["job_id"]
    while "result_url" not in (job := httpx2.get(place).json()):
        assert job["status"] != "FAILED", job
    result = httpx2.get(job["result_url"]).json()

    gaps = [question["requirement"] for question in result["questions"]]
    assert (202, ["Kubernetes", "German"]) == (sent.status_code, gaps)


def test_the_printed_commands_list_flows_and_batches_that_move(words, run):
    url = re.search(r"ready at (\S+)", words)[1]
    commands = re.findall(r"backburner ((?:flows|batches) .*)$", words, re.MULTILINE)
    with Client(url) as client:
        told = next(e for e in client.all_events(after=0) if "flow_id" in e)

    flows, batches = (run(*shlex.split(command)) for command in commands)

    assert told["flow_id"] in flows.stdout
    assert "batch_" in batches.stdout


def test_the_dashboard_has_a_question_costs_a_lane_and_a_budget_to_show(words, run):
    url = re.search(r"ready at (\S+)", words)[1]
    with Client(url) as client, httpx2.Client(base_url=url) as http:
        while not (asked := http.get("/v1/questions").json()["items"]):
            pass
        [question] = asked
        answered = run(
            "answer", question["job_id"], question["name"], '"yes"', BACKBURNER_URL=url
        )
        job = client.wait(question["job_id"], timeout=60)
        lanes = [lane["name"] for lane in client.lanes()]
        [budget] = http.get("/v1/budgets").json()["items"]

    assert "Release the report on tides?" == question["question"]
    assert 0 == answered.returncode, answered.stderr
    assert ("succeeded", 2) == (job["state"], job["usage"]["calls"])
    assert "mock/mock" in lanes
    assert ("capability", "demo.report") == (budget["scope"], budget["of"])
    assert 0 < float(job["usage"]["cost_usd"])


def test_sample_jobs_move_and_a_signal_ends_it(words, demo):
    url = re.search(r"ready at (\S+)", words)[1]
    with (
        httpx2.Client() as http,
        http.sse(f"{url}/v1/events", params={"after": 0}) as source,
    ):
        first = next(told.json() for told in source if told.event == "job.queued")
    with Client(url) as client:
        job = client.get(first["job_id"])

    code = demo.told(signal.SIGINT).exit_code()

    assert ["sample"] == job["tags"]
    assert 0 == code
    assert not [line for line in demo.lines if "Traceback" in line]


def test_jobs_that_fail_on_purpose_print_nothing_between_the_examples(words, demo):
    url = re.search(r"ready at (\S+)", words)[1]
    with Client(url) as client:
        ended = client.submit("demo.fail", {"error": "permanent"}).wait(timeout=60)

    demo.told(signal.SIGINT).exit_code()

    assert "failed" == ended["state"]
    assert not [line for line in demo.lines if "on purpose" in line]


@pytest.mark.thorough
@pytest.mark.executed
def test_a_second_demo_takes_another_port(start, words):
    url = re.search(r"ready at (\S+)", words)[1]

    other = start("demo", "--port", url.rpartition(":")[2])
    ready = other.says("Backburner is ready at ")

    assert url not in ready
