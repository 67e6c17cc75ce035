"""Durable asynchronous AI jobs: a ticket now, the result when it is ready."""

from backburner.app import App, ModelUse, Need, Setup
from backburner.backburner import Backburner
from backburner.domain.blobs.app_blob import AppBlob
from backburner.domain.costs.budget import Budget
from backburner.domain.costs.usage import Spent
from backburner.domain.errors import (
    AnswerTruncated,
    BackburnerError,
    BlobMismatch,
    BlobMissing,
    BlobTooLarge,
    BudgetExhausted,
    CallerError,
    ClaimLost,
    ConfigurationError,
    IdempotencyConflict,
    IllegalTransition,
    InvalidInput,
    JobNotFound,
    OverBudget,
    PermanentError,
    Problem,
    PromptRefused,
    SignalConflict,
    SignalTooLarge,
    StoreUnavailable,
    Throttled,
    TransactionTooLong,
    TransientError,
    UnknownCapability,
    WorkError,
)
from backburner.domain.events.event import Event
from backburner.domain.events.text import Draft, Piece
from backburner.domain.events.translation import EngineEvent, Translation
from backburner.domain.jobs.job import Job, JobState, Owner, Tenant
from backburner.domain.jobs.outcome import Cancel, Failed, Snooze
from backburner.domain.jobs.retry import RetryPolicy
from backburner.domain.lanes.lane import Lane
from backburner.domain.queues.queue import Keep, Queue, Rate
from backburner.engine.blobs.app_blobs import AppBlobs
from backburner.engine.blobs.urls import SignedUrl
from backburner.engine.broker.foreign import message_options
from backburner.engine.camel_model import CamelModel
from backburner.engine.flow import Flow
from backburner.engine.groups.tickets import BatchTicket, FlowTicket
from backburner.engine.lazy import lazy
from backburner.engine.maintenance.erasure import erase_rows
from backburner.engine.maintenance.schedule import Schedule
from backburner.engine.models.asking import Asker, Called, Correction
from backburner.engine.observability.app_metrics import (
    Counter,
    Gauge,
    Histogram,
    Operations,
)
from backburner.engine.options import SubmitGroupOptions, SubmitOptions
from backburner.engine.registry import Capability, capability
from backburner.engine.run.children import ChildFailed
from backburner.engine.run.context import Context
from backburner.engine.run.outbound import Http, HttpResponse
from backburner.engine.run.steps import NOT_DONE
from backburner.engine.run.waiting import WaitTimedOut
from backburner.engine.submit.completion import JobEnd
from backburner.engine.submit.estimates import estimate_of
from backburner.engine.submit.submission import GroupOptions
from backburner.engine.ticket import JobFailed, ResultMismatch, Ticket
from backburner.engine.transaction import Transaction, View
from backburner.environment import ServiceUrl, TimeZone
from backburner.ports.ai import Message
from backburner.settings import Settings, read_settings
from backburner.wiring import open_asker

__all__ = [  # noqa: RUF022 - sorted as strings are
    "AnswerTruncated",
    "App",
    "AppBlob",
    "AppBlobs",
    "Asker",
    "Backburner",
    "BackburnerError",
    "BatchTicket",
    "BlobMismatch",
    "BlobMissing",
    "BlobTooLarge",
    "Budget",
    "BudgetExhausted",
    "Called",
    "CallerError",
    "CamelModel",
    "Cancel",
    "Capability",
    "ChildFailed",
    "ClaimLost",
    "ConfigurationError",
    "Context",
    "Correction",
    "Counter",
    "Draft",
    "EngineEvent",
    "Event",
    "Failed",
    "Flow",
    "FlowTicket",
    "Gauge",
    "GroupOptions",
    "Histogram",
    "Http",
    "HttpResponse",
    "IdempotencyConflict",
    "IllegalTransition",
    "InvalidInput",
    "Job",
    "JobEnd",
    "JobFailed",
    "JobNotFound",
    "JobState",
    "Keep",
    "Lane",
    "Message",
    "ModelUse",
    "NOT_DONE",
    "Need",
    "Operations",
    "OverBudget",
    "Owner",
    "PermanentError",
    "Piece",
    "Problem",
    "PromptRefused",
    "Queue",
    "Rate",
    "ResultMismatch",
    "RetryPolicy",
    "Schedule",
    "ServiceUrl",
    "Settings",
    "Setup",
    "SignalConflict",
    "SignalTooLarge",
    "SignedUrl",
    "Snooze",
    "Spent",
    "StoreUnavailable",
    "SubmitGroupOptions",
    "SubmitOptions",
    "Tenant",
    "Throttled",
    "Ticket",
    "TimeZone",
    "Transaction",
    "TransactionTooLong",
    "TransientError",
    "Translation",
    "UnknownCapability",
    "View",
    "WaitTimedOut",
    "WorkError",
    "capability",
    "erase_rows",
    "estimate_of",
    "lazy",
    "message_options",
    "open_asker",
    "read_settings",
]
