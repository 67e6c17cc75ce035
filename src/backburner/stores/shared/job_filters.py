"""
The SQL conditions for a filter of jobs.

States are literals, so that partial indexes serve. No text of a caller is ever one.
"""

from typing import Final

import sqlalchemy as sa

from backburner.domain.jobs.job import JobState, Visibility
from backburner.ports.store.maintenance import JobFilter
from backburner.stores.shared.paging import seen_by, seen_without_index
from backburner.stores.shared.settling import as_json
from backburner.stores.tables import flows as flow_table
from backburner.stores.tables import jobs as job_table

c = job_table.c

DEAD: Final[sa.ColumnElement[bool]] = sa.literal_column("jobs.state = 'failed'")
FEW = frozenset({JobState.BLOCKED, JobState.WAITING, JobState.RUNNING, JobState.FAILED})
RARE = FEW - {JobState.FAILED}
LIVE = frozenset({JobState.QUEUED, JobState.SCHEDULED})
"""Few in an idle system, the newest of all in a busy one."""


def conditions_of(where: JobFilter) -> list[sa.ColumnElement[bool]]:
    """Say which jobs are meant, whoever owns them."""
    conditions = [*in_states(where), *_made(where)]
    for name in ("capability", "queue", "fingerprint", "flow", "worker"):
        wanted = getattr(where, name)
        if wanted is not None:
            conditions.append(c[name] == wanted)
    if where.batch is not None:
        conditions.append(of_batch(where.batch))
    if where.tag is not None:
        conditions.append(has_tag(c.tags, where.tag))
    for name, text in (where.metadata or {}).items():
        conditions.append(has_pair(c.metadata, name, text))
    return conditions


def in_states(where: JobFilter) -> list[sa.ColumnElement[bool]]:
    """Say which states are meant, so that the index of a single state serves."""
    conditions: list[sa.ColumnElement[bool]] = []
    # Literals, so that partial indexes serve. `JobState` raises for any other text,
    # which must never get into a statement.
    if where.state is not None:
        state = JobState(where.state).value
        conditions.append(sa.literal_column(f"jobs.state = '{state}'"))
    if where.states:
        # With one that no job has: no partial index serves, the numbers are used.
        states = sorted(JobState(state).value for state in where.states)
        listed = ", ".join(f"'{state}'" for state in ("", *states))
        conditions.append(sa.literal_column(f"jobs.state IN ({listed})"))
    if where.state is JobState.BLOCKED:
        conditions.append(c.flow.in_(_running_flows(where.owner)))
    return conditions


def _made(where: JobFilter) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if where.since is not None:
        conditions.append(c.created_at >= where.since)
    if where.until is not None:
        conditions.append(c.created_at < where.until)
    return conditions


def owner_conditions(where: JobFilter) -> list[sa.ColumnElement[bool]]:
    """Say whose jobs are meant, beside the index that finds them."""
    if where.owner is None:
        return []
    # At most as many jobs run as workers have slots: their index holds the fewest.
    by_state = where.state is JobState.RUNNING or where.state in LIVE
    if by_state or is_in_group(where):
        return seen_without_index(where.owner, c)
    return seen_by(where.owner, c)


def is_in_group(where: JobFilter) -> bool:
    """Say whether the jobs of one flow or batch are meant."""
    return where.flow is not None or where.batch is not None


def _running_flows(owner: Visibility | None = None) -> sa.Select[tuple[int]]:
    """Select the flows that blocked steps may be in: only a running one has any."""
    f = flow_table.c
    query = sa.select(f.seq).where(sa.text("flows.state = 'running'"))
    return query if owner is None else query.where(*seen_by(owner, f))


def of_batch(batch: int) -> sa.ColumnElement[bool]:
    """Say that a job is in a batch, by itself or as a step of a flow."""
    # Each by its index: a step is found by its flow, which knows its batch.
    member, step, flow = job_table.alias(), job_table.alias(), flow_table.alias()
    alone = sa.select(member.c.seq).where(
        member.c.batch == batch, member.c.batch.is_not(None), member.c.flow.is_(None)
    )
    steps = sa.select(step.c.seq).join(flow, flow.c.seq == step.c.flow)
    in_flows = steps.where(flow.c.batch == batch)
    return c.seq.in_(alone.union_all(in_flows))


def has_tag(
    tags: sa.ColumnElement[str | None], tag: str | sa.BindParameter[str]
) -> sa.ColumnElement[bool]:
    """Say that a tag is among those stored: as it is written, unlike with LIKE."""
    return _contains("\n" + tags + "\n", "\n" + tag + "\n")


def has_pair(
    metadata: sa.ColumnElement[str | None], name: str, text: str
) -> sa.ColumnElement[bool]:
    """
    Say that metadata has this text under this name.

    The stored JSON is searched for the pair as it is written there. This is exact:
    quotes within a text are escaped, so those of the pair are the ends of texts. Only
    the pairs that `check_sought` refuses look like the end of one text and the start of
    the next. Functions that parse JSON would fail if any stored text is malformed.
    """
    # A comma before each name, also in place of the brace before the first one.
    return _contains(
        "," + sa.func.substr(metadata, 2), f",{as_json({name: text})[1:-1]}"
    )


def _contains(
    text: sa.ColumnElement[str | None], part: str | sa.ColumnElement[str]
) -> sa.ColumnElement[bool]:
    """Say that a text has a part, as it is written: LIKE has wildcards."""
    return sa.func.replace(text, part, "") != text
