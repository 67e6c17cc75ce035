"""What operators rely on: metrics, alert rules, settings and the start."""

import re
from pathlib import Path

import pytest
import yaml

from backburner.app import Setup
from backburner.settings import Settings
from backburner.startup import problems, read_apps
from backburner_apps.features import app
from backburner_apps.features.settings import FeaturesSettings
from tests.apps.features.conftest import POSTING
from tests.apps.process import until

MOCK = {"ai": ("mock",)}
RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "features.rules.yaml"
METRIC = re.compile(r"\b(?:backburner|jobs|processing|llm)_[a-z_]+(?=[\[{)])")


def rules():
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


async def test_metrics_count_what_happened_and_the_rules_name_them(start):
    features = await start()
    names = ["jobs_submitted_total", "jobs_completed_total"]
    counted = [features.metric(name, feature="vpr") for name in names]
    runs = features.metric("processing_duration_seconds_count", feature="vpr")
    asks = features.metric("llm_latency_seconds_count", feature="vpr")
    cancels = {"feature": "vpr", "code": "CANCELLED"}
    cancelled = features.metric("jobs_failed_total", **cancels)

    done = (await features.submit("vpr"))["job_id"]
    await features.ended(done, "vpr")
    hanging = f"{POSTING} [[mock: hang]]"
    job_id = (await features.submit("vpr", posting=hanging))["job_id"]
    await features.client.post(f"/api/vpr/cancel/{job_id}")

    async def is_counted():
        ended = features.metric("jobs_completed_total", feature="vpr") > counted[1]
        return ended and features.metric("jobs_failed_total", **cancels) > cancelled

    await until(is_counted)
    written = (await features.client.get("/metrics")).text

    assert [counted[0] + 2, counted[1] + 1] == [
        features.metric(name, feature="vpr") for name in names
    ]
    assert cancelled + 1 == features.metric("jobs_failed_total", **cancels)
    assert runs < features.metric("processing_duration_seconds_count", feature="vpr")
    assert asks < features.metric("llm_latency_seconds_count", feature="vpr")
    named = {name for rule in rules().values() for name in METRIC.findall(rule["expr"])}
    assert 4 == len(named)
    assert set() == {name for name in named if f"\n{name}" not in written}


def test_there_is_a_rule_for_each_alarm_and_its_limit():
    limits = {name: rule["expr"].split()[-1] for name, rule in rules().items()}

    assert {
        "FeaturesDeadLetters": "0",
        "FeaturesWorkerErrors": "0.05",
        "FeaturesSlowProcessing": "600",
    } == limits
    for rule in rules().values():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert {"summary", "description"} == set(rule["annotations"])


@pytest.mark.parametrize(
    ("setup", "settings", "named"),
    [
        (Setup(frozenset({"features"})), MOCK, ["BACKBURNER_LINK_SECRET"]),
        (Setup(frozenset({"features"})), {**MOCK, "link_secret": "s" * 32}, []),
        (Setup(frozenset({"features"}), is_dev=True), MOCK, []),
        (Setup(frozenset()), MOCK, []),
        (Setup(frozenset()), {}, ["BACKBURNER_AI"]),
    ],
    ids=["serves", "with a secret", "in development", "works", "without a model"],
)
def test_a_process_does_not_start_without_what_it_needs(setup, settings, named):
    told = problems(Settings(**settings), [app], setup, read_apps([app]))

    assert named == [sentence.split()[0] for sentence in told]


@pytest.mark.parametrize("field", ["keep_days", "timeout_seconds", "ai_seconds"])
def test_a_setting_must_be_positive(field):
    with pytest.raises(ValueError, match=field):
        FeaturesSettings(**{field: 0})


def test_the_queues_keep_jobs_as_the_settings_say():
    queue, _ = app.queues_for(FeaturesSettings(keep_days=1, keep_failed_days=2))

    assert (1, 2) == (queue.keep.succeeded.days, queue.keep.failed.days)
