"""
The conformance suite for stores: subclass `StoreConformance`, supply two fixtures.

`store` is an open, empty store; `let_pass` advances its clock by a time span, by
whatever means. A store is complete when its subclass passes.
"""

from backburner.testing.store.account_samples import AccountSampleConformance
from backburner.testing.store.app_blobs import AppBlobConformance
from backburner.testing.store.audited import AuditedConformance
from backburner.testing.store.batches import BatchConformance
from backburner.testing.store.budgets import BudgetConformance
from backburner.testing.store.callbacks import CallbackConformance
from backburner.testing.store.claims import ClaimConformance
from backburner.testing.store.completions import CompletionConformance
from backburner.testing.store.dead_letter_exports import DeadLetterExportConformance
from backburner.testing.store.endpoints import EndpointConformance
from backburner.testing.store.erasure import ErasureConformance
from backburner.testing.store.event_log import EventLogConformance
from backburner.testing.store.extension import ExtendConformance
from backburner.testing.store.fairness import CapConformance, FairnessConformance
from backburner.testing.store.flow_submission import FlowSubmitConformance
from backburner.testing.store.flows import FlowConformance
from backburner.testing.store.forgetting import ForgetConformance
from backburner.testing.store.holds import HoldConformance
from backburner.testing.store.keeper import KeeperConformance
from backburner.testing.store.keeping import KeepConformance
from backburner.testing.store.keys import KeyConformance
from backburner.testing.store.lanes import LaneConformance
from backburner.testing.store.moves import MoveConformance
from backburner.testing.store.publications import PublicationConformance
from backburner.testing.store.queues import QueueConformance
from backburner.testing.store.reopening import ReopenConformance
from backburner.testing.store.roster import RosterConformance
from backburner.testing.store.settlements import SettleConformance
from backburner.testing.store.steps import StepConformance
from backburner.testing.store.submission import SubmitConformance
from backburner.testing.store.timetable import TimetableConformance
from backburner.testing.store.topics import TopicConformance
from backburner.testing.store.totals import TotalsConformance
from backburner.testing.store.transacted_groups import TransactedGroupConformance
from backburner.testing.store.transactions import TransactConformance
from backburner.testing.store.usages import UsageConformance
from backburner.testing.store.waits import WaitConformance

__all__ = ["StoreConformance"]


class StoreConformance(
    SubmitConformance,
    ClaimConformance,
    SettleConformance,
    TransactConformance,
    TransactedGroupConformance,
    MoveConformance,
    RosterConformance,
    QueueConformance,
    TotalsConformance,
    FairnessConformance,
    CapConformance,
    TimetableConformance,
    FlowSubmitConformance,
    FlowConformance,
    ExtendConformance,
    ReopenConformance,
    BatchConformance,
    BudgetConformance,
    AccountSampleConformance,
    HoldConformance,
    CallbackConformance,
    CompletionConformance,
    ErasureConformance,
    EventLogConformance,
    TopicConformance,
    PublicationConformance,
    KeeperConformance,
    KeepConformance,
    ForgetConformance,
    AuditedConformance,
    KeyConformance,
    EndpointConformance,
    UsageConformance,
    StepConformance,
    WaitConformance,
    LaneConformance,
    DeadLetterExportConformance,
    AppBlobConformance,
):
    """Tests of everything that `ports/store` guarantees."""
