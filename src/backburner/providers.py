"""The public API for packages that offer model providers as `backburner.ai`."""

from backburner.domain.ai import Trouble
from backburner.ports.ai import (
    Access,
    Chat,
    Fault,
    Hear,
    Media,
    Models,
    Provider,
    Reply,
    Tokens,
    Vector,
)
from backburner.ports.clock import Clock

__all__ = [
    "Access",
    "Chat",
    "Clock",
    "Fault",
    "Hear",
    "Media",
    "Models",
    "Provider",
    "Reply",
    "Tokens",
    "Trouble",
    "Vector",
]
