"""The commands that send signals and answer questions, against a server."""

import json


def test_a_signal_is_sent_once_and_refused_if_it_differs(ask):
    job = ask("submit", "demo.echo", "{}", "--delay", "1h").stdout.strip()
    value = '{"amount": 5}'

    sent = ask("signal", job, "paid", value)
    again = ask("signal", job, "paid", value, "--json")
    differs = ask("signal", job, "paid", "6")
    broken = ask("signal", job, "paid", "not JSON")

    assert (0, f"{job} paid\n") == (sent.returncode, sent.stdout)
    assert {"job_id": job, "name": "paid"} == json.loads(again.stdout)
    assert 0 != differs.returncode
    assert "SIGNAL_CONFLICT" in differs.stderr
    assert (2, True) == (broken.returncode, "not JSON" in broken.stderr)


def test_questions_are_listed_and_one_that_is_not_open_cannot_be_answered(ask):
    job = ask("submit", "demo.echo", "{}", "--delay", "1h").stdout.strip()

    listed = ask("questions")
    as_json = ask("questions", "--json")
    answered = ask("answer", job, "send", '"yes"')

    assert (0, 0, "") == (listed.returncode, as_json.returncode, as_json.stdout)
    assert 0 != answered.returncode
    assert "SIGNAL_CONFLICT" in answered.stderr
