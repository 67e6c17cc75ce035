"""`breakable` with a handler that tells everybody."""

import sys
from typing import Any

from breakable import shout

from backburner import App, Context, capability


@capability("shout", max_attempts=1)
async def gossip(ctx: Context, value: dict[str, Any]) -> None:
    """Print what was given before saying it."""
    print(value, file=sys.stderr, flush=True)
    await shout.run(ctx, value)


app = App("leaky", capabilities=[gossip])
