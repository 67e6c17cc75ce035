import asyncio
import json

import httpx2
import pytest

from backburner.client import AsyncClient, Client, WebhookError, verify_webhook
from tests.egress.receiver import Receiver, answers

NOWHERE = {"TASKS_SERVICE_BASE_URL": "http://127.0.0.1:1"}


async def test_webhooks_are_looked_after(serve, run):
    async with Receiver(answers(204)) as receiver:
        url = serve(BACKBURNER_WEBHOOK_ALLOW="127.0.0.1").url

        def command(*arguments):
            return asyncio.to_thread(run, "webhooks", *arguments, BACKBURNER_URL=url)

        submitted = await asyncio.to_thread(
            run,
            *("submit", "demo.echo", "{}", "--callback", receiver.url()),
            BACKBURNER_URL=url,
        )
        async with AsyncClient(url) as client:
            job_id = submitted.stdout.strip()
            await client.wait(job_id)
            (delivery,) = [job async for job in client.deliveries(job_id)]
            await client.wait(delivery["id"])
            (endpoint,) = [found async for found in client.endpoints()]
        here = endpoint["id"]
        created = await command("create", receiver.url())
        listed = await command("list")
        rotated = await command("rotate", here)
        disabled = await command("disable", here)
        enabled = await command("enable", here, "--json")
        replayed = await command("replay", delivery["id"])
        with Client(url) as again:
            await asyncio.to_thread(again.wait, replayed.stdout.strip())

    first, second = receiver.requests
    verify_webhook(first.body, first.headers, created.stdout.strip())
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    verify_webhook(second.body, second.headers, rotated.stdout.strip())
    assert [here, "enabled", "1", receiver.url(), ""] == listed.stdout.strip(
        "\n"
    ).split("\t")
    assert "disabled\n" == disabled.stdout
    assert json.loads(enabled.stdout)["disabled_at"] is None


def test_an_endpoint_that_nobody_knows_is_not_found(ask):
    rotated = ask("webhooks", "rotate", "ep_0")

    assert 3 == rotated.returncode
    assert "ENDPOINT_NOT_FOUND" in rotated.stderr


async def test_the_printed_secret_verifies_an_applications_callback(serve, run):
    master = {"BACKBURNER_WEBHOOK_SECRET": "a master key of the tests, thirty-two long"}
    allowed = {"BACKBURNER_WEBHOOK_ALLOW": "127.0.0.1"}
    async with Receiver(answers(201)) as receiver:
        server = serve("ai", BACKBURNER_APPS="", **master, **allowed, **NOWHERE)
        asked = {"naturalLanguage": "buy milk", "userId": 1}
        async with httpx2.AsyncClient(trust_env=False) as client:
            answer = await client.post(
                f"{server.url}/api/v1/capabilities/parse-task?pattern=async",
                json={**asked, "callbackUrl": receiver.url()},
            )
        flow_id = answer.json()["aiServiceRequestId"]
        async with AsyncClient(server.url) as client:
            await client.wait_flow(flow_id, timeout=60)

        def printed(*arguments):
            ended = run("webhooks", "secret", *arguments, **master, **allowed)
            assert 0 == ended.returncode, ended.stderr
            return ended.stdout.strip()

        secret = printed(f"http://127.0.0.1:{receiver.port}")
        others = [
            printed(receiver.url(), "--topic", "other"),
            printed("https://example.com"),
        ]

    [callback] = receiver.requests
    told = verify_webhook(callback.body, callback.headers, secret)
    assert ("success", flow_id) == (told["status"], told["aiServiceRequestId"])
    for other in others:
        with pytest.raises(WebhookError, match="not signed"):
            verify_webhook(callback.body, callback.headers, other)


@pytest.mark.parametrize(
    ("url", "env", "reason"),
    [
        ("https://example.com", {}, "BACKBURNER_WEBHOOK_SECRET is not set"),
        (
            "ftp://example.com",
            {"BACKBURNER_WEBHOOK_SECRET": "s" * 32},
            "'ftp://example.com' is not a callback URL: the URL does not",
        ),
    ],
)
def test_a_secret_that_cannot_be_printed_is_one_line(run, url, env, reason):
    ended = run("webhooks", "secret", url, **env)

    assert (2, "") == (ended.returncode, ended.stdout)
    assert reason in ended.stderr
    assert 1 == len(ended.stderr.splitlines())
