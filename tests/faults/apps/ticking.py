"""A schedule whose tick comes when a test says so: its own is seldom."""

from breakable import app as breakable
from breakable import work

from backburner import App, Schedule
from backburner.cli import faults


class AtTheTick(faults.Crash):
    """Crashes that count from the first tick: there are other transactions before."""

    is_armed = False

    def hit(self, name: str) -> None:
        self.is_armed |= name == "schedule.firing"
        if self.is_armed:
            super().hit(name)


faults.Crash = AtTheTick

app = App(
    "ticking",
    breakable.capabilities,
    schedules=[Schedule("yearly", "0 0 1 1 *", work, {}, missed="run_once")],
)
