"""The table says what was measured, and nothing that was not."""

import pytest

from bench import table

DRAIN, CPU = table.ROWS[:2]
SHARE = next(row for row in table.ROWS if row.figure == "share")
NAPS = next(row for row in table.ROWS if row.name == "naps")
SAQ = {"saq": {"title": "SAQ 1 on Redis", "store": "redis"}}
HUEY = {"huey": {"title": "Huey 1 on SQLite", "store": "sqlite"}}


def the_table(row, runs, peers=None):
    machine = {"cores": 2, "versions": {"Python": "3"}}
    origin = {"commit": "abcdef", "date": "2026-11-16", "machine": machine}
    report = {**origin, "reps": 3, "peers": peers or {}, "runs": runs}
    return table.render([row], report)


def test_a_cell_holds_the_median_the_range_and_the_goal():
    figures = [{"per_second": n} for n in (14_000, 13_000, 18_000)]

    written = the_table(DRAIN, {"sqlite drain": figures})

    assert "| **14,000** [13,000–18,000] (≥ 12,000) |" in written


def test_a_goal_that_is_not_reached_is_said_to_be_missed():
    written = the_table(CPU, {"postgres drain": [{"cpu_us": 61.5}]})

    assert "| **61.5** [61.5–61.5] (≤ 60, missed) |" in written


def test_a_peer_on_sqlite_is_compared_with_ours_on_sqlite():
    runs = {
        "sqlite drain": [{"per_second": 12_000}],
        "postgres drain": [{"per_second": 10_000}],
        "peer huey": [{"per_second": 1_000}],
    }

    written = the_table(DRAIN, runs, HUEY)

    assert "| Huey 1 on SQLite 1,000: 12.0 × |" in written


def test_a_peer_on_another_server_is_compared_with_ours_on_postgresql():
    runs = {
        "sqlite drain": [{"per_second": 12_000}],
        "postgres drain": [{"per_second": 10_000}],
        "peer saq": [{"per_second": 1_000}],
    }

    written = the_table(DRAIN, runs, SAQ)

    assert "| SAQ 1 on Redis 1,000: 10.0 × |" in written


def test_a_peer_on_a_broker_is_also_compared_with_ours_on_that_broker():
    runs = {
        "postgres drain": [{"per_second": 10_000}],
        "redis drain": [{"per_second": 6_000}],
        "rabbitmq drain": [{"per_second": 4_000}],
        "peer saq": [{"per_second": 1_000}],
        "peer huey": [{"per_second": 500}],
    }

    *_, last = the_table(DRAIN, runs, SAQ | HUEY).strip().splitlines()

    assert "| **4,000** [4,000–4,000] (≥ 4,000) | **6,000** [6,000–6,000]" in last
    assert last.endswith("| SAQ 1 on Redis 1,000: 6.0 × |")


def test_a_figure_without_a_goal_stands_alone():
    written = the_table(DRAIN, {"sqs drain": [{"per_second": 19}]})

    assert "| **19** [19–19] |" in written


def test_without_a_broker_there_is_one_table():
    written = the_table(DRAIN, {"sqlite drain": [{"per_second": 19}]})

    assert table.WITH_BROKER not in written


def test_less_is_better_where_less_is_wanted():
    runs = {"postgres drain": [{"cpu_us": 40}], "peer saq": [{"cpu_us": 400}]}

    written = the_table(CPU, runs, SAQ)

    assert "SAQ 1 on Redis 400: 10.0 ×" in written


def test_a_peer_without_a_figure_is_not_in_the_table():
    runs = {"postgres drain": [{"per_second": 10_000}], "peer saq": []}

    written = the_table(DRAIN, runs, SAQ)

    assert "SAQ" not in written


def test_a_row_without_a_figure_is_not_in_the_table():
    written = the_table(DRAIN, {"sqlite drain": []})

    assert DRAIN.title not in written


def test_what_was_not_measured_in_this_run_is_marked():
    written = the_table(NAPS, {"postgres naps": [{"wall_s": 1.19}]})

    assert "| *earlier:* BullMQ on Redis (Node) 1.19: 1.0 × |" in written


def test_the_share_is_taken_of_the_drain_of_the_same_repetition():
    runs = {
        "sqlite drain": [{"per_second": 10_000}, {"per_second": 20_000}],
        "sqlite drain_over_history": [{"per_second": 9_000}, {"per_second": 19_000}],
    }

    table.add_shares(runs)

    assert [0.9, 0.95] == table.values_of(SHARE, "sqlite", runs)


def test_only_what_lies_between_the_marks_is_replaced():
    page = "above <!-- bench -->old<!-- /bench --> below"

    written = table.replaced(page, "new")

    assert "above <!-- bench -->new<!-- /bench --> below" == written


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="has no <!-- bench -->"):
        table.replaced("above, below", "new")
