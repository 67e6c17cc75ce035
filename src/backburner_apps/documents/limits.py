"""The queues of `documents`: concurrency, rates and delays of retries."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from backburner import Keep, Queue, Rate, RetryPolicy
from backburner_apps.documents.settings import DocumentsSettings

EXTRACT_QUEUE: Final = "file-extract"
CHUNK_QUEUE: Final = "file-chunk"
EMBED_QUEUE: Final = "file-embed"
COMPLETION_QUEUE: Final = "batch-completion"
ANSWER_QUEUE: Final = "documents-answers"
UPKEEP_QUEUE: Final = "documents-upkeep"

EXTRACT: Final = "documents.extract"
CHUNK: Final = "documents.chunk"
EMBED: Final = "documents.embed"

ATTEMPTS: Final = 3
KEPT: Final = 100
"""Number of completed jobs that a queue keeps."""
LONGEST_DELAY: Final = timedelta(seconds=60)


def queues(settings: DocumentsSettings) -> Sequence[Queue]:
    """Return the limits of the queues."""
    return [
        _queue(
            EXTRACT_QUEUE,
            settings,
            settings.extract_at_once,
            settings.extract_per_minute,
        ),
        _queue(
            CHUNK_QUEUE, settings, settings.chunk_at_once, settings.chunk_per_minute
        ),
        _queue(
            EMBED_QUEUE, settings, settings.embed_at_once, settings.embed_per_minute
        ),
        _queue(COMPLETION_QUEUE, settings, settings.completion_at_once, 0),
        Queue(ANSWER_QUEUE, concurrency=settings.answers_at_once),
        Queue(UPKEEP_QUEUE, keep=Keep(succeeded=timedelta(hours=1))),
    ]


def retries(settings: DocumentsSettings) -> Mapping[str, RetryPolicy]:
    """Return the delays of retries for each stage."""
    return {
        EXTRACT: policy(settings.extract_retry_seconds),
        CHUNK: policy(settings.chunk_retry_seconds),
        EMBED: policy(settings.embed_retry_seconds),
    }


def policy(seconds: float) -> RetryPolicy:
    """Return delays that double from the first one, up to a minute."""
    return RetryPolicy(
        max_attempts=ATTEMPTS,
        base=timedelta(seconds=seconds),
        cap=LONGEST_DELAY,
        jitter=timedelta(),
    )


def _queue(
    name: str, settings: DocumentsSettings, at_once: int, per_minute: int
) -> Queue:
    failed = timedelta(days=settings.dead_letter_days)
    window = timedelta(seconds=settings.rate_seconds)
    return Queue(
        name,
        concurrency=at_once,
        rate=Rate(per_minute, window) if per_minute else None,
        keep=Keep(succeeded_count=KEPT, failed=failed),
    )
