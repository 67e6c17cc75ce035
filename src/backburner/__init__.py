"""Durable asynchronous AI jobs: a ticket now, the result when it is ready."""

from backburner.app import App
from backburner.domain.budget import Budget
from backburner.domain.errors import (
    BackburnerError,
    BudgetExhausted,
    CallerError,
    ConfigurationError,
    IdempotencyConflict,
    IllegalTransition,
    InvalidInput,
    JobNotFound,
    PermanentError,
    PromptRefused,
    StoreUnavailable,
    Throttled,
    TransientError,
    UnknownCapability,
    WorkError,
)
from backburner.domain.event import Event
from backburner.domain.job import Job, JobState, Owner
from backburner.domain.lane import Lane
from backburner.domain.outcome import Cancel, Failed, Snooze
from backburner.domain.queue import Queue, Rate
from backburner.domain.retry import RetryPolicy
from backburner.domain.text import Piece
from backburner.domain.usage import Spent
from backburner.engine.asking import Asker
from backburner.engine.context import Context
from backburner.engine.estimates import estimate_of
from backburner.engine.flow import Flow
from backburner.engine.registry import Capability, capability
from backburner.engine.schedule import Schedule
from backburner.engine.ticket import BatchTicket, FlowTicket, JobFailed, Ticket
from backburner.engine.transaction import Transaction, View
from backburner.ports.ai import Message
from backburner.settings import Settings
from backburner.wiring import Backburner

__all__ = [
    "App",
    "Asker",
    "Backburner",
    "BackburnerError",
    "BatchTicket",
    "Budget",
    "BudgetExhausted",
    "CallerError",
    "Cancel",
    "Capability",
    "ConfigurationError",
    "Context",
    "Event",
    "Failed",
    "Flow",
    "FlowTicket",
    "IdempotencyConflict",
    "IllegalTransition",
    "InvalidInput",
    "Job",
    "JobFailed",
    "JobNotFound",
    "JobState",
    "Lane",
    "Message",
    "Owner",
    "PermanentError",
    "Piece",
    "PromptRefused",
    "Queue",
    "Rate",
    "RetryPolicy",
    "Schedule",
    "Settings",
    "Snooze",
    "Spent",
    "StoreUnavailable",
    "Throttled",
    "Ticket",
    "Transaction",
    "TransientError",
    "UnknownCapability",
    "View",
    "WorkError",
    "capability",
    "estimate_of",
]
