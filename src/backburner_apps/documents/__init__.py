"""
Documents: upload files in batches, follow their processing, search them.

A confirmed file becomes a flow of three jobs: extract its text, split it into chunks,
embed the chunks. A file's state follows from the events of these jobs, regardless of
what ends or reopens a job. See docs/documents.md.
"""

from importlib.resources import files

from backburner import App, ModelUse, Translation, lazy
from backburner_apps.documents import (
    answers,
    batches,
    chunk_store,
    embed_work,
    metrics,
    pgvector,
    reembedding,
    removal,
    sample,
    upkeep,
    work,
)
from backburner_apps.documents.cli import commands
from backburner_apps.documents.following import TYPES, follow
from backburner_apps.documents.limits import EXTRACT_QUEUE, queues, retries
from backburner_apps.documents.settings import DocumentsSettings
from backburner_apps.documents.uploads import arrived

app = App(
    "documents",
    own=[
        *(work.extract, work.chunk, work.embed),
        *(batches.report, batches.complete),
        *(removal.remove, upkeep.end_overdue, embed_work.embed_question),
        pgvector.index_vectors,
        *(reembedding.reembed, reembedding.reembed_file, reembedding.drop_others),
        answers.answer,
    ],
    queues=queues,
    retries=retries,
    schedules=upkeep.SCHEDULES,
    uploaded=arrived,
    translates=Translation(TYPES, follow),
    counted_queue=EXTRACT_QUEUE,
    serves=lazy("backburner_apps.documents.routes:serves"),
    models=[
        ModelUse("embedding", is_required=False, fallback="minilm"),
        ModelUse("chat", is_required=False),
    ],
    commands=commands,
    pages=files("backburner_apps.documents") / "pages",
    settings=DocumentsSettings,
    migrations="backburner_apps.documents.migrations",
    tables=lazy("backburner_apps.documents.rows:all_tables"),
    samples=sample.make,
    erase=removal.erase,
    rebuild=chunk_store.rebuild,
    examine=lazy("backburner_apps.documents.examination:examine"),
    metrics=metrics.EVERY,
    log_keys=[
        *("fileId", "batchId", "stage", "resetState", "attempt"),
        *("total", "ready", "failed"),
    ],
)
