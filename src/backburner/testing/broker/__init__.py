"""
The conformance suite for brokers: subclass `BrokerConformance`, supply two fixtures.

`server` is a `Server` (`hooks.py`), through which tests manipulate the broker.
`a_queue` returns, for a word, the name of an unused queue that is deleted after the
test together with its dead letters. A broker is complete when its subclass passes.

`Proxied` implements most of a `Server` for brokers that are reached over TCP.
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
    """Tests of everything that `ports/broker.py` guarantees."""
