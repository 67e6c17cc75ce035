import json


def test_budgets_are_set_listed_and_dropped(serve, run):
    url = serve().url
    there = {"BACKBURNER_URL": url}

    put = run("budgets", "set", "user", "--tokens", "5", **there)
    run("budgets", "set", "tenant", "--money", "2.5", "--per-seconds", "60", **there)
    rules = run("budgets", "list", "--rules", "--json", **there)
    shown = run("budgets", "list", **there)
    dropped = run("budgets", "drop", "user", "--json", **there)
    again = run("budgets", "drop", "user", **there)

    assert (0, "user\t*\ttokens\t5\t86400") == (
        put.returncode,
        put.stdout.splitlines()[-1],
    )
    told = [json.loads(line) for line in rules.stdout.splitlines()]
    assert [("tenant", "2.500000", 60), ("user", 5, 86_400)] == [
        (rule["scope"], rule["limit"], rule["per_seconds"]) for rule in told
    ]
    assert 0 == shown.returncode
    assert ["tenant"] == [
        json.loads(line)["scope"] for line in dropped.stdout.splitlines()
    ]
    assert 3 == again.returncode
    assert "BUDGET_NOT_FOUND" in again.stderr


def test_who_is_over_budget_is_told_by_the_exit_code(serve, run):
    url = serve().url
    there = {"BACKBURNER_URL": url}
    run("budgets", "set", "user", "--tokens", "0", **there)

    refused = run("submit", "demo.echo", "{}", **there)
    listed = run("budgets", "list", "--json", **there)

    assert 6 == refused.returncode, refused.stderr
    assert "BUDGET_EXHAUSTED" in refused.stderr
    assert 0 == listed.returncode


def test_the_history_of_a_budget_ends_with_its_state_now(serve, run):
    url = serve().url
    there = {"BACKBURNER_URL": url}
    run("budgets", "set", "user", "--tokens", "500", **there)
    run("submit", "demo.echo", "{}", "--wait", **there)
    [used] = run("budgets", "list", "--json", **there).stdout.splitlines()
    of = json.loads(used)["of"]

    table = run("budgets", "history", "user", of, **there)
    lines = run("budgets", "history", "user", of, "--json", **there)
    unknown = run("budgets", "history", "user", "no/one", "--unit", "money", **there)

    assert 0 == table.returncode, table.stderr
    assert "500\t0\t0" == table.stdout.splitlines()[-1].partition("\t")[2]
    last = json.loads(lines.stdout.splitlines()[-1])
    assert {"limit": 500, "held": 0, "settled": 0} == {
        name: last[name] for name in ("limit", "held", "settled")
    }
    assert 3 == unknown.returncode
    assert "BUDGET_NOT_FOUND" in unknown.stderr
