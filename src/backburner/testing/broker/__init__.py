"""
What every broker must do: subclass `BrokerConformance` and supply two fixtures.

`server` is a `Server` (`hooks.py`): what a test does to the broker from outside.
`a_queue` returns, for a word, the name of a queue that nobody uses and that is gone
after the test, its dead letters too. A broker is done when its subclass passes.

`Proxied` is most of a `Server` for a broker that is reached by TCP.
"""

from backburner.testing.broker.dead_letters import DeadLetterConformance
from backburner.testing.broker.foreign import ForeignConformance
from backburner.testing.broker.handing_out import HandingOutConformance
from backburner.testing.broker.hooks import Proxied, Server
from backburner.testing.broker.recovery import RecoveryConformance

__all__ = ["BrokerConformance", "Proxied", "Server"]


class BrokerConformance(
    HandingOutConformance,
    ForeignConformance,
    DeadLetterConformance,
    RecoveryConformance,
):
    """Everything that `ports/broker.py` promises."""
