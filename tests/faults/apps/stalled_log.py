"""`breakable`, but `block` blocks the event loop by a line of the log."""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from breakable import Work, leave_one_effect, work

from backburner import App, Context, capability
from backburner.ports.log import log


def stall(gate: Path) -> None:
    """Make stdout and stderr a full pipe, which is read only after the gate is open."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    for stream in (1, 2):
        os.dup2(writer, stream)
    threading.Thread(target=read_later, args=(reader, gate), daemon=True).start()


def read_later(reader: int, gate: Path) -> None:
    """Begin to read when the gate is open."""
    while gate.exists():
        time.sleep(0.01)  # noqa: TID251 - as `breakable` waits
    while os.read(reader, 4096):
        pass


@capability("block")
async def block(ctx: Context, value: Work) -> str:
    """Write a line that nobody reads, until the gate is open."""
    leave_one_effect(ctx)
    if value.gate is not None:
        stall(value.gate)
    log.error("a line of any handler")
    return ctx.job.id


app = App("breakable", capabilities=[work, block])
