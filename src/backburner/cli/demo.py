"""`demo`: a server with sample jobs, to try things out."""

import asyncio
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from backburner.adapters import MissingPackage, installed_apps
from backburner.app import App
from backburner.backburner import Backburner
from backburner.cli import printing
from backburner.cli.applications import AppOption, load
from backburner.cli.serving import (
    LevelOption,
    StoreOption,
    address,
    bind,
    in_development,
)
from backburner.domain.errors import ConfigurationError
from backburner.engine.flow import Flow
from backburner.settings import Settings, read

FOLDER: Final = Path(".backburner")
FILE: Final = FOLDER / "demo.db"
STORE: Final = f"sqlite:///{FILE}"
SAMPLE_APPS: Final = ("backburner.demo:app", "backburner.demo:models")
EVERY_SECONDS: Final = 1.0
KEPT_DAYS: Final = 0.25
"""Sample jobs are submitted continuously, so finished ones are deleted early."""

Sample: TypeAlias = tuple[str, Mapping[str, Any]]
SAMPLES: Final[tuple[Sample, ...]] = (
    ("demo.echo", {"hello": "world"}),
    ("demo.sleep", {"seconds": 5}),
    ("demo.report", {"topic": "bicycles"}),
    ("demo.fail", {"times": 1}),
    ("demo.sleep", {"seconds": 2}),
    ("demo.echo", {"text": "a ticket now, the result when it is ready"}),
    ("demo.fail", {"times": 1, "error": "throttled", "retry_after": 5}),
    ("demo.write", {"seconds": 4}),
    ("demo.sleep", {"seconds": 12}),
    ("demo.echo", {}),
    ("demo.fail", {"times": 1, "error": "permanent"}),
)
FIRST: Final[Sample] = ("demo.report", {"topic": "tides", "is_reviewed": True})
"""A job that waits for an answer from a person; it is submitted once."""
ASKING: Final = "demo.report"
"""What calls a model: only the offline mock is called without being asked to."""
PRICES: Final = """{
  "version": "demo", "models": {"mock": {"input": "3", "output": "15"}}
}"""
"""Invented prices, so that the dashboard has costs to show."""

GROUPS_EVERY_SECONDS: Final = 15.0


def sample_flow() -> Flow:
    """Return a flow of two parallel naps and a step that summarises both."""
    flow = Flow()
    naps = flow.map("demo.sleep", [{"seconds": 3}, {"seconds": 5}], tags=["sample"])
    flow.add("demo.echo", after=naps, name="tell", tags=["sample"])
    return flow


TO_TRY: Final = """
Backburner is ready at {url}

The dashboard at {url}/ui/ shows the jobs live.

Submit a job. The answer is a 202 with its id:

  curl -i {url}/v1/jobs -H 'Content-Type: application/json' \\
    -d '{{"capability": "demo.sleep", "input": {{"seconds": 3}}}}'

Poll the job by its id until its state is `succeeded`:

  curl {url}/v1/jobs/ID

Or do both with one command, with a progress bar:

  {command} submit demo.sleep '{{"seconds": 3}}' --wait{option}

Create a task from a sentence, through two services and a webhook, and list it:

  curl -i {url}/api/v1/tasks -H 'Content-Type: application/json' \\
    -d '{{"naturalLanguage": "urgently pack tomorrow: passport, charger and shoes"}}'
  curl {url}/api/v1/tasks

Send a chat message to a personality that remembers what you say:

  curl -i {url}/ai/generate -d '{{
    "personalityId": "assistant", "channelId": "c1", "userId": "1",
    "userMessage": "My dog is called Rex."}}'

Send a message to a Telegram bot that turns messages into tasks, and read its reply:

  curl {url}/telegram/webhook -d '{{"update_id": 1, "message": {{
    "message_id": 1, "chat": {{"id": 42}}, "from": {{"id": 42, "first_name": "Ada"}},
    "text": "Pack tomorrow: passport, charger and shoes"}}}}'
  curl {url}/inbox/outbox

The page {url}/apps/inbox/ also shows the reply.

{documents}\
Find the gaps between a CV and a job posting: submit, poll by the job_id until it is
COMPLETED, and fetch the result_url (in quotes):

  curl -i {url}/api/gap-analysis/submit -d '{{
    "user_cv": "Ada: five years of Python and PostgreSQL.",
    "job_posting": "We need Python, Kubernetes and German."}}'
  curl {url}/api/gap-analysis/status/JOB_ID

List the sample flows (jobs that depend on other jobs) and batches:

  {command} flows list{option}
  {command} batches list{option}

Every route is described at {url}/docs. Press Ctrl-C to stop.
"""
DOCUMENTS_TO_TRY: Final = """\
Search the sample document, and open a batch to upload files to (docs/documents.md):

  curl "{url}/api/v2/search?q=dead+letter"
  curl -i {url}/api/v2/uploads/batches -d '{{"fileCount": 1}}'
  curl {url}/api/v2/uploads/files

Upload your own files, search them and ask about them at {url}/apps/documents/.

"""


def demo(
    *,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 selects a free one.")
    ] = None,
    store: StoreOption = STORE,
    app: AppOption = None,
    log_level: LevelOption = "error",
) -> None:
    """Serve all installed applications and sample jobs with a separate store."""
    from backburner.cli import running
    from backburner.engine.loop import Loop

    settings = in_development(
        read(
            host="127.0.0.1",
            port=port,
            store=store,
            log_level=log_level,
            apps=app,
            keep_succeeded_days=KEPT_DAYS,
            keep_failed_days=KEPT_DAYS,
            keep_cancelled_days=KEPT_DAYS,
        )
    )
    if not settings.prices:
        settings = settings.model_copy(update={"prices": PRICES})
    apps = load((*settings.apps, *_usable_apps(), *SAMPLE_APPS))
    with _bind(settings) as listener:
        if store == STORE:  # not of a demo that runs: that has the port
            _prepare(settings, apps)
        here = address(listener)

        def ready(backburner: Backburner, stack: AsyncExitStack) -> None:
            samples = cycle(_allowed(SAMPLES, settings))
            is_told = asyncio.Event()
            # The samples of an application may fail: they are made again then.
            once = f"demo-{secrets.token_hex(8)}"

            async def submit() -> None:
                await backburner.submit(*next(samples), tags=["sample"])
                if not is_told.is_set():
                    await _ask_first(backburner, settings, once)
                    await _make_samples(apps, backburner)
                    is_told.set()
                    _tell(here, apps)

            async def open_batch() -> None:
                flows, jobs = [sample_flow()], [("demo.sleep", {"seconds": 8})]
                await backburner.open_batch(jobs, flows, tags=["sample"])

            for work, every in (
                (submit, EVERY_SECONDS),
                (open_batch, GROUPS_EVERY_SECONDS),
            ):
                trickle = Loop("samples", work, every=every)
                trickle.start()
                stack.push_async_callback(trickle.stop)

        plan = running.Plan(
            settings,
            apps,
            ready,
            listener=listener,
            address=here,
            shows_traces=True,
        )
        raise typer.Exit(running.run(plan))


def _prepare(settings: Settings, apps: Sequence[App]) -> None:
    """Create the folder of the demo's own store, or bring the store up to date."""
    from backburner.cli.migrate import upgrade

    FOLDER.mkdir(exist_ok=True)
    if FILE.exists():
        upgrade(settings, apps)


def _allowed(samples: Sequence[Sample], settings: Settings) -> Sequence[Sample]:
    """Leave out samples that would call the provider that somebody configured."""
    providers = settings.ai_text or settings.ai
    is_offline = all(name.partition(":")[0] == "mock" for name in providers)
    return [sample for sample in samples if is_offline or sample[0] != ASKING]


def _usable_apps() -> list[str]:
    """Return the names of installed applications that have all of their packages."""
    names = []
    for name in installed_apps():
        try:
            load([name])
        except MissingPackage as error:
            printing.say(f"backburner: not started: {error}")
        else:
            names.append(name)
    return names


async def _ask_first(backburner: Backburner, settings: Settings, key: str) -> None:
    for first in _allowed([FIRST], settings):
        await backburner.submit(*first, tags=["sample"], idempotency_key=key)


async def _make_samples(apps: Sequence[App], backburner: Backburner) -> None:
    """Let the applications create the data that the printed examples use."""
    for app in apps:
        if app.samples is not None and app.name not in backburner.unavailable:
            await app.samples(backburner)


def _bind(settings: Settings) -> Any:
    """Listen on the port, or on a free one if it is in use by a second demo."""
    try:
        return bind(settings)
    except ConfigurationError:
        return bind(settings.model_copy(update={"port": 0}))


def _tell(url: str, apps: Sequence[App]) -> None:
    option = "" if url == read().url else f" --url {url}"
    has_documents = any(app.name == "documents" for app in apps)
    documents = DOCUMENTS_TO_TRY.format(url=url) if has_documents else ""
    words = TO_TRY.format(
        url=url, command=_command(), option=option, documents=documents
    )
    for line in words.splitlines():
        printing.say(line)


def _command() -> str:
    """Return this program as the user would call it."""
    here = Path(sys.argv[0])
    if here.name == "__main__.py":
        return "python -m backburner"
    found = shutil.which(here.name)
    return here.name if found and Path(found).samefile(here) else str(here)
