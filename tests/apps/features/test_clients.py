"""Submit, poll and fetch with the Python clients, curl and the TypeScript poller."""

import asyncio
import json
from pathlib import Path

import pytest

from backburner.client import AsyncClient, Client
from tests.apps.chat.discord import node
from tests.apps.features.conftest import CV, POSTING, body
from tests.apps.process import until
from tests.chromium import a_page, visited

PROJECT = Path(__file__).parents[3]
SOURCE = PROJECT / "clients" / "typescript"
COMPILED = PROJECT / "src" / "backburner_apps" / "features" / "pages"
POLLER = COMPILED / "poller.js"
SUBMIT_POLL_FETCH = """
export async function run({ FeatureClient }, { url, key, cv, posting }) {
  const client = new FeatureClient(url, key);
  const seen = [];
  const user_cv_key = await client.uploadCv("vpr", new Blob([cv]));
  const sent = await client.submit("vpr", { user_cv_key, job_posting: posting }, "k1");
  const onProgress = job => seen.push(job.status);
  const job = await client.poll("vpr", sent.job_id, { onProgress, intervalMs: 50 });
  const result = await client.result(job);
  const refused = await client.status("vpr", "1").catch(error => error.code);
  const unknown = await client.submit("tarot", {}).catch(error => error.status);
  return { sent: sent.status, status: job.status, seen, result, refused, unknown };
}
"""
IN_NODE = """
import * as poller from "POLLER";
import { run } from "RUN";
const input = await new Promise(done => process.stdin.on("data", d => done(d)));
console.log(JSON.stringify(await run(poller, JSON.parse(input))));
"""
IN_A_PAGE = """<!doctype html><title>Another origin</title><script type="module">
import * as poller from "/scripts/poller.js"
import { run } from "/scripts/run.js"
const say = (type, data) => fetch("/said", {
  method: "POST", body: JSON.stringify({name: "poller", type, data})})
const asked = await (await fetch("/asked")).json()
const failed = error => say("failed", `${error}`)
run(poller, asked[0]).then(done => say("done", done), failed)
</script>"""
WITHOUT_WAITING = """
import { FeatureClient, FeatureError } from "POLLER";
const waits = [];
globalThis.setTimeout = (go, ms) => { waits.push(ms); queueMicrotask(go); return 0; };
const answers = [];
globalThis.fetch = async (_url, options = {}) => {
  options.signal?.throwIfAborted();
  const next = answers.length > 1 ? answers.shift() : answers[0];
  if (next === "network") throw new TypeError("fetch failed");
  const [status, body, headers] = next;
  return new Response(JSON.stringify(body), { status, headers });
};
const job = status => [200, { job_id: "1", status, created_at: "t" }, {}];
const client = new FeatureClient("http://server");
const tried = async (list, options) => {
  answers.splice(0, answers.length, ...list);
  waits.length = 0;
  const polled = client.poll("vpr", "1", options);
  const outcome = await polled.then(found => found.status, error => error.message);
  return [outcome, [...waits]];
};
const stop = new AbortController();
const seen = [];
const busy = [503, {}, {}];
const told = [429, {}, { "retry-after": "33" }];
console.log(JSON.stringify({
  slow: await tried([job("PROCESSING")], { onProgress: () => seen.push(1) }),
  polls: seen.length,
  errors: await tried([busy, "network", job("PENDING"), told, job("COMPLETED")]),
  denied: await tried([[404, { detail: "no such job", code: "JOB_NOT_FOUND" }, {}]]),
  aborted: await tried([job("PROCESSING")],
    { signal: stop.signal, onProgress: () => stop.abort(new Error("stopped")) }),
  faulty: await tried([job("PROCESSING")],
    { onProgress: () => { throw new TypeError("a fault of the caller") } }),
}));
"""


def told_node(script, tmp_path, value=None):
    """Run a script with the compiled poller in Node; return what it prints."""
    run = tmp_path / "run.mjs"
    run.write_text(SUBMIT_POLL_FETCH)
    file = tmp_path / "main.mjs"
    poller = tmp_path / "poller.mjs"  # Node takes `.js` for CommonJS
    poller.write_text(POLLER.read_text())
    named = script.replace("POLLER", poller.as_uri()).replace("RUN", run.as_uri())
    file.write_text(named)
    done = node.run(file, value=value)
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


def check(told):
    """Check what a run of `SUBMIT_POLL_FETCH` came to."""
    assert ("PENDING", "COMPLETED") == (told["sent"], told["status"])
    assert "COMPLETED" == told["seen"][-1]
    assert "Kubernetes" in {each["requirement"] for each in told["result"]["concerns"]}
    assert ("JOB_NOT_FOUND", 404) == (told["refused"], told["unknown"])


async def test_the_python_clients_submit_poll_and_fetch(start):
    features = await start(keyed=True)
    shown = (await features.key("ann"))["Authorization"].removeprefix("Bearer ")
    seen = []

    def blocking():
        with Client(features.url, api_key=shown) as client:
            key = client.upload_cv("vpr", CV.encode())
            request = {"user_cv_key": key, "job_posting": POSTING}
            made = client.submit_feature("vpr", request)
            job = client.poll_feature(
                "vpr", made["job_id"], on_progress=seen.append, every=0.05
            )
            return job, client.fetch_result(job)

    job, result = await asyncio.to_thread(blocking)
    async with AsyncClient(features.url, api_key=shown) as client:
        made = await client.submit_feature("gap-analysis", body())
        other = await client.poll_feature("gap-analysis", made["job_id"], every=0.05)
        gaps = await client.fetch_result(other)
        again = await client.feature_status("vpr", job["job_id"])

    assert ("COMPLETED", "COMPLETED") == (job["status"], other["status"])
    assert job == seen[-1]
    assert "Kubernetes" in {each["requirement"] for each in result["concerns"]}
    assert "GAP_QUESTIONS_GENERATED" == gaps["code"]
    assert job["completed_at"] == again["completed_at"]


async def test_curl_submits_polls_and_fetches(start):
    features = await start()

    async def curl(*words):
        program = await asyncio.create_subprocess_exec(
            *("curl", "-sS", "--noproxy", "*", *words),
            stdout=asyncio.subprocess.PIPE,
        )
        answered, _ = await program.communicate()
        assert 0 == program.returncode
        return json.loads(answered)

    at = f"{features.url}/api/gap-analysis"
    sent = await curl(f"{at}/submit", "-d", json.dumps(body()))

    async def completed():
        job = await curl(f"{at}/status/{sent['job_id']}")
        return job if job["status"] == "COMPLETED" else None

    job = await until(completed)
    result = await curl(job["result_url"])

    assert "PENDING" == sent["status"]
    assert "GAP_QUESTIONS_GENERATED" == result["code"]


@pytest.mark.one_store
async def test_the_typescript_poller_runs_in_node(start, tmp_path):
    features = await start(keyed=True)
    shown = (await features.key("ann"))["Authorization"].removeprefix("Bearer ")
    asked = {"url": features.url, "key": shown, "cv": CV, "posting": POSTING}

    check(await asyncio.to_thread(told_node, IN_NODE, tmp_path, asked))


@pytest.mark.one_store
@pytest.mark.parametrize("is_listed", [True, False], ids=["listed", "not listed"])
async def test_the_typescript_poller_runs_in_chromium_from_another_origin(
    start, tmp_path, is_listed
):
    scripts = {"poller.js": POLLER.read_text(), "run.js": SUBMIT_POLL_FETCH}
    async with a_page(html=IN_A_PAGE, scripts=scripts) as page:
        listed = page.origin if is_listed else "http://a.example"
        features = await start(keyed=True, cors_origins=(listed,))
        shown = (await features.key("ann"))["Authorization"].removeprefix("Bearer ")
        page.asks = [{"url": features.url, "key": shown, "cv": CV, "posting": POSTING}]
        async with visited(page, tmp_path / "browser"):
            said = await page.until("poller", "done" if is_listed else "failed")

    if is_listed:
        check(said["data"])
    else:
        assert "TypeError: Failed to fetch" == said["data"]


def test_the_typescript_poller_asks_as_often_as_agreed(tmp_path):
    told = told_node(WITHOUT_WAITING, tmp_path)

    text = "Job processing timeout - please check status later"
    assert [text, [5000] * 59] == told["slow"]
    assert 60 == told["polls"]
    assert ["COMPLETED", [10_000, 20_000, 5000, 33_000]] == told["errors"]
    assert ["no such job", []] == told["denied"]
    assert ["stopped", []] == told["aborted"]
    assert ["a fault of the caller", []] == told["faulty"]


@pytest.mark.thorough
def test_the_shipped_module_is_what_the_source_compiles_to(tmp_path):
    tsc = node.HOME / "typescript" / "bin" / "tsc"
    done = node.run(tsc, "-p", SOURCE, "--outDir", tmp_path)

    assert 0 == done.returncode, done.stdout
    assert {"poller.js", "poller.d.ts"} == {path.name for path in tmp_path.iterdir()}
    for path in tmp_path.iterdir():
        assert path.read_text() == (COMPILED / path.name).read_text()
