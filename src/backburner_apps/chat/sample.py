"""The sample personality of `backburner demo`."""

from typing import Final

from backburner import Backburner
from backburner_apps.chat.personalities import create
from backburner_apps.chat.shapes import NewPersonality

TENANT: Final = "default"
ASSISTANT: Final = NewPersonality(
    id="assistant",
    name="Assistant",
    system_prompt=(
        "You are a helpful, friendly assistant in a chat. Answer briefly and plainly."
    ),
)


async def make(backburner: Backburner) -> None:
    """Store the sample personality unless it exists."""
    await backburner.transact(lambda tx: create(tx, TENANT, ASSISTANT))
