"""
A client of the HTTP API, for other programs and for the command line.

`Client` waits in its calls, `AsyncClient` is awaited; otherwise they are the same.
What the server sends is given back as plain data under typed names; what it refuses
is a `ClientError`. Waiting and streaming survive a server that goes and returns.
"""

from backburner.client.asynchronous import AsyncClient, AsyncTicket
from backburner.client.blocking import Client, Ticket
from backburner.client.connection import DEFAULT_URL
from backburner.client.errors import (
    ClientError,
    Conflict,
    Denied,
    JobFailed,
    NotFound,
    NotYet,
    RateLimited,
    Unavailable,
)
from backburner.client.shapes import (
    Event,
    FailureGroup,
    Job,
    JobError,
    JobsQuery,
    Progress,
    Queue,
    Rate,
    Retried,
    RetryQuery,
    Schedule,
    SubmitOptions,
    is_final,
)

__all__ = [
    "DEFAULT_URL",
    "AsyncClient",
    "AsyncTicket",
    "Client",
    "ClientError",
    "Conflict",
    "Denied",
    "Event",
    "FailureGroup",
    "Job",
    "JobError",
    "JobFailed",
    "JobsQuery",
    "NotFound",
    "NotYet",
    "Progress",
    "Queue",
    "Rate",
    "RateLimited",
    "Retried",
    "RetryQuery",
    "Schedule",
    "SubmitOptions",
    "Ticket",
    "Unavailable",
    "is_final",
]
