"""The limit on model calls holds over all workers, whatever the models."""

import asyncio

from backburner.ai.mock import Mock
from backburner.clock import SystemClock
from backburner.testing.broker.acts import pause
from backburner_apps.chat.shapes import LlmConfig, NewPersonality


class Paced(Mock):
    """A provider with limits; it counts who is with it at once, once it is shut."""

    name = "paced"
    is_paced = True

    def __init__(self):
        super().__init__(SystemClock())
        self.at_once = self.most = 0
        self.is_open = asyncio.Event()

    async def chat(self, chat, hear=None):
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.is_open.wait()
            return await super().chat(chat, hear)
        finally:
            self.at_once -= 1


async def test_two_workers_make_no_more_calls_at_once_than_are_allowed(start):
    provider = Paced()
    limits = {"provider_at_once": 3, "provider_spacing_ms": 10}
    one = await start(provider=provider, **limits)
    await start(provider=provider, **limits)
    for n in range(2):
        config = LlmConfig(model=f"model-{n}")
        await one.make(
            NewPersonality(
                id=f"p{n}", name="P", system_prompt="You are P.", llm_config=config
            )
        )
    asking = asyncio.gather(
        *(one.generate(str(n), personalityId=f"p{n % 2}") for n in range(8))
    )
    async with asyncio.timeout(60):
        while provider.at_once < 3:
            await pause()
    provider.is_open.set()
    replies = await asking

    assert [200] * 8 == [reply.status_code for reply in replies]
    assert 3 == provider.most
