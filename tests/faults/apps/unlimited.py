"""The handlers of `limited`, without its limits."""

import limited

from backburner import App

app = App("unlimited", limited.app.capabilities)
