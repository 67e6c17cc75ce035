"""
Long LLM features: submit a request, poll its status, fetch the result.

`core` and `catalogue` depend neither on the engine nor on a cloud provider. The modules
here run them on Backburner, those in `aws` on AWS. See docs/features.md.
"""

from collections.abc import Iterator
from importlib.resources import files

from backburner import App, Keep, ModelUse, Need, Queue, Setup, Translation, lazy
from backburner_apps.features import metrics, work
from backburner_apps.features.records import QUEUE
from backburner_apps.features.settings import FeaturesSettings


def _needs(setup: Setup) -> Iterator[Need]:
    if "features" in setup.served and not setup.is_dev:
        yield Need(("link_secret",), "to sign the URLs of uploads and results")


def _queues(settings: FeaturesSettings) -> list[Queue]:
    completed, failed = settings.retention
    keep = Keep(succeeded=completed, failed=failed)
    return [Queue(QUEUE, keep=keep), Queue(work.UPKEEP_QUEUE, keep=keep)]


app = App(
    "features",
    own=[*work.RUNS.values(), work.clean_up],
    queues=_queues,
    schedules=work.SCHEDULES,
    serves=lazy("backburner_apps.features.routes:serves"),
    models=[ModelUse("chat")],
    needs=_needs,
    settings=FeaturesSettings,
    migrations="backburner_apps.features.migrations",
    tables=lazy("backburner_apps.features.tables:all_tables"),
    erase=lazy("backburner_apps.features.tables:erase"),
    translates=Translation(metrics.ENDS, metrics.count_end),
    metrics=metrics.EVERY,
    pages=files("backburner_apps.features") / "pages",
)
