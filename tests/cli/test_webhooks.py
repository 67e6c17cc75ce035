import asyncio
import json

from backburner.client import AsyncClient, Client, verify_webhook
from tests.egress.receiver import Receiver, answers


async def test_webhooks_are_looked_after(serve, run):
    async with Receiver(answers(204)) as receiver:
        url = serve(BACKBURNER_WEBHOOK_ALLOW="127.0.0.1").url

        def command(*arguments):
            return asyncio.to_thread(run, "webhooks", *arguments, BACKBURNER_URL=url)

        async with AsyncClient(url) as client:
            callback = {"url": receiver.url()}
            ticket = await client.submit("demo.echo", {}, callback=callback)
            await ticket.wait()
            (delivery,) = [job async for job in client.deliveries(ticket.id)]
            await client.wait(delivery["id"])
            (endpoint,) = [found async for found in client.endpoints()]
        here = endpoint["id"]
        listed = await command("list")
        rotated = await command("rotate", here)
        disabled = await command("disable", here)
        enabled = await command("enable", here, "--json")
        replayed = await command("replay", delivery["id"])
        with Client(url) as again:
            await asyncio.to_thread(again.wait, replayed.stdout.strip())

    first, second = receiver.requests
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
