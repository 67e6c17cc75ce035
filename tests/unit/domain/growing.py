"""How the time that something takes grows with the length of its text."""

import time

SHORT, LONG = 50_000, 200_000
QUADRATIC = 10
"""Four times the text takes four times as long, and sixteen if not linear."""
TRIES = 3
LEAST_SECONDS = 0.002
"""Less than that is noise, not growth."""


def growth(function, unit):
    """Return how many times as long the long text takes: CPU time, the best of some."""
    return max(_seconds(function, unit, LONG), LEAST_SECONDS) / max(
        _seconds(function, unit, SHORT), LEAST_SECONDS
    )


def _seconds(function, unit, length):
    text = (unit * (length // len(unit) + 1))[:length]
    return min(_once(function, text) for _ in range(TRIES))


def _once(function, text):
    began = time.process_time()
    function(text)
    return time.process_time() - began
