"""
A client of the HTTP API, for other programs and for the command line.

`Client` blocks in its calls, `AsyncClient` is awaited; otherwise they are the same.
Responses are returned as plain data with typed names; errors are raised as
`ClientError`. Waiting and streaming continue when a server restarts. `verify_webhook`
is for receivers of webhooks.
"""

from backburner.client.asynchronous import AsyncClient, AsyncTicket
from backburner.client.asynchronous_groups import AsyncBatchTicket, AsyncFlowTicket
from backburner.client.blocking import Client, Ticket
from backburner.client.blocking_groups import BatchTicket, FlowTicket
from backburner.client.connection import DEFAULT_URL
from backburner.client.errors import (
    ClientError,
    Conflict,
    Denied,
    JobFailed,
    NotFound,
    NotYet,
    PollAborted,
    PollTimeout,
    RateLimited,
    Unavailable,
    WebhookError,
)
from backburner.client.feature_dialogue import FeatureJob
from backburner.client.group_options import (
    BatchesQuery,
    BatchOptions,
    Completion,
    FlowOptions,
    FlowsQuery,
    Need,
    NewFlow,
    NewJob,
    NewStep,
)
from backburner.client.options import (
    BudgetOptions,
    EventsQuery,
    JobChange,
    JobsQuery,
    RetryQuery,
    ScheduleOptions,
    SubmitOptions,
    UsageQuery,
    WebhookEvent,
    is_final,
)
from backburner.client.webhooks import check_webhook_headers, verify_webhook
from backburner.domain.events.text import Piece, Text
from backburner.shapes.groups import Added, Batch, Counts, Flow, Step
from backburner.shapes.jobs import Event, FailureGroup, Job, JobError, Progress, Retried
from backburner.shapes.operations import (
    Budget,
    BudgetHistory,
    BudgetPoint,
    BudgetRule,
    Budgets,
    CapabilityInfo,
    Endpoint,
    Lane,
    Queue,
    Rate,
    Schedule,
    SecretEndpoint,
    Worker,
)
from backburner.shapes.usage import Quote, Receipt, Usage, UsageReport

__all__ = [
    "DEFAULT_URL",
    "Added",
    "AsyncBatchTicket",
    "AsyncClient",
    "AsyncFlowTicket",
    "AsyncTicket",
    "Batch",
    "BatchOptions",
    "BatchTicket",
    "BatchesQuery",
    "Budget",
    "BudgetHistory",
    "BudgetOptions",
    "BudgetPoint",
    "BudgetRule",
    "Budgets",
    "CapabilityInfo",
    "Client",
    "ClientError",
    "Completion",
    "Conflict",
    "Counts",
    "Denied",
    "Endpoint",
    "Event",
    "EventsQuery",
    "FailureGroup",
    "FeatureJob",
    "Flow",
    "FlowOptions",
    "FlowTicket",
    "FlowsQuery",
    "Job",
    "JobChange",
    "JobError",
    "JobFailed",
    "JobsQuery",
    "Lane",
    "Need",
    "NewFlow",
    "NewJob",
    "NewStep",
    "NotFound",
    "NotYet",
    "Piece",
    "PollAborted",
    "PollTimeout",
    "Progress",
    "Queue",
    "Quote",
    "Rate",
    "RateLimited",
    "Receipt",
    "Retried",
    "RetryQuery",
    "Schedule",
    "ScheduleOptions",
    "SecretEndpoint",
    "Step",
    "SubmitOptions",
    "Text",
    "Ticket",
    "Unavailable",
    "Usage",
    "UsageQuery",
    "UsageReport",
    "WebhookError",
    "WebhookEvent",
    "Worker",
    "check_webhook_headers",
    "is_final",
    "verify_webhook",
]
