"""The composition root: settings and entry points become a running instance."""

import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload
from urllib.parse import urlsplit

from pydantic_settings import BaseSettings

from backburner import schemas
from backburner.adapters import (
    find_blobs,
    find_broker,
    find_provider,
    find_providers,
    find_store,
    is_chosen,
    unreachable,
)
from backburner.ai.presets import PURPOSES
from backburner.app import App, ReadsMessage, Uploaded
from backburner.clock import StoreClock, SystemClock, SystemDice
from backburner.domain.ai import Purpose
from backburner.domain.costs.budget import Budget
from backburner.domain.errors import (
    BrokerUnavailable,
    ConfigurationError,
    PermanentError,
)
from backburner.domain.events.translation import Selection
from backburner.domain.jobs.job import Claim, Job, Owner, Submitted, Visibility
from backburner.domain.jobs.retry import RetryPolicy
from backburner.domain.jobs.transitions import Limits
from backburner.domain.jobs.wait import Question
from backburner.domain.lanes.lane import Lane, lane_name
from backburner.domain.queues.queue import Queue
from backburner.engine.access.keys import Keys
from backburner.engine.access.signed_urls import SignedUrls
from backburner.engine.blobs.app_blobs import AppBlobs, BlobService
from backburner.engine.blobs.payloads import Payloads, Sweeper
from backburner.engine.blobs.urls import UrlSigner
from backburner.engine.broker.dead_letter_export import DeadLetterExporter
from backburner.engine.broker.foreign import ForeignMessages
from backburner.engine.broker.health import BrokerHealth
from backburner.engine.broker.intake import Intake
from backburner.engine.broker.relay import Relay
from backburner.engine.engine import Engine
from backburner.engine.flow import NOTHING, Chain, Flow, written
from backburner.engine.groups.bulk import bulk
from backburner.engine.groups.tickets import BatchTicket, FlowTicket
from backburner.engine.maintenance.schedule import Schedule
from backburner.engine.maintenance.scheduler import Scheduler
from backburner.engine.maintenance.translating import Translator
from backburner.engine.maintenance.upkeep import Upkeep, UpkeepOptions
from backburner.engine.models.asking import Asker, Providers
from backburner.engine.observability.app_metrics import register
from backburner.engine.observability.lag import LagMeter
from backburner.engine.options import SubmitGroupOptions, SubmitOptions
from backburner.engine.registry import Capability, Registry
from backburner.engine.run.heartbeat import Pulse, ThreadHeartbeat
from backburner.engine.run.inline import InlineRunner
from backburner.engine.run.outbound import Http, HttpLimits
from backburner.engine.run.parents import telling_parents
from backburner.engine.run.runtime import Runtime
from backburner.engine.run.worker import Worker, WorkerOptions
from backburner.engine.submit.budgets import Budgets
from backburner.engine.submit.submission import (
    LOCAL,
    Callbacks,
    Submission,
    group_options,
    job_options,
)
from backburner.engine.ticket import Ticket
from backburner.engine.transaction import Transaction, View
from backburner.engine.watch import Watch
from backburner.engine.webhooks.callback_sender import CallbackSender
from backburner.engine.webhooks.deliveries import delivering
from backburner.engine.webhooks.delivery import SCHEDULE, Deliver, WebhookSender
from backburner.engine.webhooks.messages import Messages
from backburner.engine.webhooks.receiver_limits import ReceiverLimits
from backburner.ports.ai import Provider
from backburner.ports.broker import Broker
from backburner.ports.clock import Clock
from backburner.ports.faults import Faults, NoFaults
from backburner.ports.log import allow
from backburner.ports.notifier import Notifier
from backburner.ports.store import Store
from backburner.ports.store.keys import KeyStore
from backburner.ports.store.maintenance import JobFilter, Retention
from backburner.prices import ListPrices, read_overrides
from backburner.settings import Settings, read
from backburner.startup import reach_of, read_apps

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
In = TypeVar("In")
Out = TypeVar("Out")

PRUNE_AFTER = 5.0
"""Seconds after which a new process first deletes old rows."""
LOOK_POLLS = 3
"""With a broker, how many polls apart it is compared with the store …"""
SWEEP_POLLS = 15
"""… and how many apart workers look for what no message told of."""


class Backburner:
    """
    An instance over one store: submit from it, and work in it if you like.

    `async with Backburner(store="sqlite:///jobs.db", capabilities=[…]) as bb:`
    """

    _http: Http | None = None
    """What sends the requests of handlers, once one has asked."""

    def __init__(  # noqa: PLR0913, PLR0915 - each is a thing of its own
        self,
        settings: Settings | None = None,
        *,
        store: str | None = None,
        capabilities: Iterable[Capability[Any, Any]] = (),
        apps: Iterable[App] = (),
        app_settings: Iterable[BaseSettings] = (),
        address: str = "",
        queues: Iterable[Queue] = (),
        schedules: Iterable[Schedule] = (),
        budgets: Iterable[Budget] = (),
        lanes: Iterable[Lane] = (),
        faults: Faults | None = None,
        deliveries: RetryPolicy = SCHEDULE,
        broker: Broker | None = None,
        ai: Provider | Sequence[Provider] | None = None,
    ) -> None:
        """
        Take what to run and, for `deliveries`, when to repeat a failed webhook.

        `app_settings` take the place of what applications would read from the
        environment. `address` is the URL at which this process serves, if it does.

        A `broker` takes the place of the one that the settings name.
        `ai` are providers of models of your own, in place of those that are set.
        """
        self.settings = settings or read(store=store)
        self.registry = Registry(capabilities)
        self._schedules = [*schedules]
        self._budgets = [*budgets]
        for queue in queues:
            self.registry.limit(queue)
        for lane in lanes:
            self.registry.pace(lane)
        self._codes: dict[tuple[str, Purpose], str] = {}
        self._model_lanes: dict[str, str] = {}
        """By capability, the lane by which its application's model calls go."""
        self._readers: dict[str, ReadsMessage] = {}
        self._app_of: dict[str, str] = {}
        """By capability, the application that has it."""
        self._blobs: BlobService | None = None
        self._apps = tuple(apps)
        self._app_settings = read_apps(self._apps, app_settings)
        self.address = address
        self._reach = reach_of(self.settings, self._apps, self._app_settings, address)
        self.unavailable: dict[str, str] = {}
        """Applications whose tables are not as they need them, and why."""
        for app in self._apps:
            self._add(app)
        self._prices = ListPrices(read_overrides(self.settings.prices))
        self._machine = SystemClock()
        self._clock = StoreClock(self._machine)
        self._dice = SystemDice()
        self._faults = faults or NoFaults()
        self._deliveries = deliveries
        self._given_broker = broker
        self._broker: tuple[Broker, BrokerHealth] | None = None
        self._dead_letter_exporter: DeadLetterExporter | None = None
        self._ai = ai
        self._providers: Providers | None = None
        self._callback_sender: CallbackSender | None = None
        self._stack = AsyncExitStack()
        self._worker: Worker | None = None
        self._engine: Engine | None = None
        self._keys: Keys | None = None

    def _add(self, app: App) -> None:
        allow(app.name, app.log_keys)
        register(app.name, app.metrics)
        for found in (*app.capabilities, *app.own):
            self._app_of[found.name] = app.name
            for use in app.models:
                self._codes[found.name, use.purpose] = use.code
        for found in app.capabilities:
            self.registry.add(found)
        for found in app.own:
            self.registry.own(found)
        self.registry.counted_queue = app.counted_queue or self.registry.counted_queue
        own = self._settings_of(app)
        self._add_model_lane(app)
        for queue in app.queues_for(own):
            self.registry.limit(queue)
        if app.retries is not None:
            self.registry.retries |= app.retries(own)
        for lane in app.lanes:
            self.registry.pace(lane)
        self._readers |= app.messages
        self._schedules += app.schedules
        self._budgets += app.budgets

    def _add_model_lane(self, app: App) -> None:
        if app.model_lane is None:
            return
        lane = app.model_lane(self._settings_of(app))
        self.registry.pace(lane)
        for found in (*app.capabilities, *app.own):
            self._model_lanes[found.name] = lane.name

    def _settings_of(self, app: App) -> Any:
        return None if app.settings is None else self._app_settings.of(app.settings)

    @property
    def engine(self) -> Engine:
        """The engine's verbs, while Backburner is open."""
        if self._engine is None:
            raise ConfigurationError(
                "Backburner is not open: use `async with Backburner(…)`"
            )
        return self._engine

    def settings_of(self, model: type[S]) -> S:
        """Return an application's settings, by their model."""
        return self._app_settings.of(model)

    @property
    def budgets(self) -> Budgets:
        """The budgets, and holds without a job, while Backburner is open."""
        return self.engine.budgets

    def asker(self) -> Asker:
        """Return who asks models without a job: no lane, no ledger but `calls`."""
        if self._providers is None:
            raise ConfigurationError(
                "Backburner is not open: use `async with Backburner(…)`"
            )
        return Asker(self._providers)

    @cached_property
    def callback_sender(self) -> CallbackSender:
        """Who signs what applications tell others, and checks whom they may tell."""
        settings = self.settings
        return CallbackSender(self._reach, _webhook_key(settings), self._clock)

    @overload
    async def run(
        self,
        capability: Capability[In, Out],
        value: In,
        *,
        owner: Owner = LOCAL,
        key: str | None = None,
        request_id: str | None = None,
    ) -> Out: ...

    @overload
    async def run(
        self,
        capability: str,
        value: Any,
        *,
        owner: Owner = LOCAL,
        key: str | None = None,
        request_id: str | None = None,
    ) -> Any: ...

    async def run(
        self,
        capability: Capability[Any, Any] | str,
        value: Any,
        *,
        owner: Owner = LOCAL,
        key: str | None = None,
        request_id: str | None = None,
    ) -> Any:
        """
        Run a capability here and now, by the code of a job: return its result.

        There is no job: no retry, no lane. Budgets hold what it may cost and are
        settled with what it used. What goes wrong is raised.
        """
        submission = self._submission
        found = submission.find(capability)
        options = job_options({"owner": owner, "key": key, "request_id": request_id})
        job = submission.prepare(found, value, options)
        job.id = submission.draw("call", job.created_at)
        here = InlineRunner(
            self.submit,
            self._providers,
            self.budgets,
            self._prices,
            self._app_settings,
            self._outbound,
            self.engine,
        )
        return await here.run(found, job)

    @property
    def keys(self) -> Keys:
        """The API keys, while Backburner is open."""
        if self._keys is None:
            self._keys = _keys(self.engine.store, self.settings, self._clock)
        return self._keys

    async def __aenter__(self) -> Self:
        try:
            self._engage()
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._worker is not None:
                await self.stop_worker(grace=0.0)
        finally:
            await self._stack.aclose()
            self._engine = self._keys = self._providers = self._http = None
            self._blobs = None

    async def start_worker(self) -> None:
        """Begin to run jobs in this process."""
        settings = self.settings
        self._deliver()
        self.registry.own(telling_parents(self.engine), has_queue=False)
        if not self.registry.served() and not settings.queues:
            raise ConfigurationError(
                "a worker needs capabilities: name applications with --app or "
                "BACKBURNER_APPS"
            )
        self.registry.own(bulk(self.engine))
        worker = Worker(
            Runtime(
                store=self.engine.store,
                notifier=self._notifier,
                clock=self._clock,
                dice=self._dice,
                faults=self._faults,
                registry=self.registry,
                submit=self.submit,
                wrap=self.engine.wrap,
                payloads=self.engine.payloads,
                plan=self.engine.flows.plan,
                touch=self.engine.batches.touch,
                prices=self._prices,
                on_job_failed=self._on_job_failed,
                intake=self._make_intake(),
                providers=self._providers,
                callback_sender=self._callback_sender,
                app_settings=self._app_settings,
                http=self._outbound,
                storage=self.engine,
            ),
            WorkerOptions(
                slots=settings.slots,
                queues=settings.queues,
                poll=settings.poll_seconds,
                beat=settings.beat_seconds,
                patience=settings.lane_patience_seconds,
                paid_patience=settings.lane_paid_patience_seconds,
                limits=_limits(settings),
            ),
            self._heartbeat,
        )
        await worker.start()
        self._worker = worker

    async def stop_worker(self, grace: float | None = None) -> bool:
        """Stop running jobs; return whether all finished within the grace."""
        worker, self._worker = self._worker, None
        if worker is None:
            return True
        return await worker.stop(
            self.settings.grace_seconds if grace is None else grace
        )

    @overload
    async def submit(
        self,
        capability: Capability[In, Out],
        value: In,
        **options: Unpack[SubmitOptions],
    ) -> Ticket[Out]: ...

    @overload
    async def submit(
        self, capability: str, value: Any, **options: Unpack[SubmitOptions]
    ) -> Ticket[Any]: ...

    async def submit(
        self,
        capability: Capability[Any, Any] | str,
        value: Any,
        **options: Unpack[SubmitOptions],
    ) -> Ticket[Any]:
        """
        Submit a job; when this returns it is durable. Options: see `Options`.

        By its capability the input and the result are typed, by a name they are JSON.
        """
        submitted = await self.engine.submit(capability, value, job_options(options))
        return self._ticket(submitted, capability)

    @overload
    async def submit_many(
        self,
        capability: Capability[In, Out],
        values: Sequence[In],
        **options: Unpack[SubmitOptions],
    ) -> Sequence[Ticket[Out]]: ...

    @overload
    async def submit_many(
        self, capability: str, values: Sequence[Any], **options: Unpack[SubmitOptions]
    ) -> Sequence[Ticket[Any]]: ...

    async def submit_many(
        self,
        capability: Capability[Any, Any] | str,
        values: Sequence[Any],
        **options: Unpack[SubmitOptions],
    ) -> Sequence[Ticket[Any]]:
        """Submit many jobs of one capability, all or none."""
        chosen = job_options(options)
        submitted = await self.engine.submit_many(
            [(capability, value, chosen) for value in values]
        )
        return [self._ticket(answer, capability) for answer in submitted]

    def _ticket(
        self, submitted: Submitted, capability: Capability[Any, Any] | str
    ) -> Ticket[Any]:
        output = None if isinstance(capability, str) else capability.output
        return Ticket(submitted, self.engine, output)

    async def submit_flow(
        self,
        flow: Flow | Chain,
        value: Any = NOTHING,
        **options: Unpack[SubmitGroupOptions],
    ) -> FlowTicket:
        """Submit a flow, or a chain with its input. Options: see `GroupOptions`."""
        wanted = (written(flow, value), group_options(options))
        return FlowTicket((await self.engine.flows.submit([wanted]))[0], self.engine)

    async def open_batch(
        self,
        jobs: Iterable[tuple[Capability[Any, Any] | str, Any]] = (),
        flows: Iterable[Flow] = (),
        *,
        expected: int | None = None,
        completion: Mapping[str, Any] | None = None,
        sealed: bool | None = None,
        **options: Unpack[SubmitGroupOptions],
    ) -> BatchTicket:
        """
        Put jobs and flows under one id; with `expected`, more may be added until then.

        `completion` names the job that follows: `{"capability": …, "input": …}`.
        """
        chosen = group_options(options)
        members = self.engine.batches.gather(jobs, flows, chosen)
        submitted = await self.engine.batches.open(
            chosen, members, expected=expected, completion=completion, sealed=sealed
        )
        return BatchTicket(submitted, self.engine, chosen)

    async def transact(
        self,
        body: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **named: P.kwargs,
    ) -> T:
        """
        Run a plain function in one transaction, jobs it submits included.

        It gets the transaction and what else is given: `transact(add, "a song")`.
        """
        return await self.engine.transact(lambda tx: body(tx, *args, **named))

    async def read(
        self, body: Callable[Concatenate[View, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """
        Run a plain function over what is committed now; nobody waits for it.

        It gets the database as it is at one instant, and what else is given.
        """
        return await self.engine.read(lambda view: body(view, *args, **named))

    def blobs(self, app: str, owner: Owner = LOCAL) -> AppBlobs:
        """
        Return the blobs of one application that belong to one owner.

        They outlive jobs: see `AppBlobs`. A handler has them as `ctx.app_blobs`.
        """
        return self._opened_blobs.of(app, owner)

    async def upload_origins(self) -> Sequence[str]:
        """Return the origins of signed URLs that do not lead to this server."""
        signed = await self.blobs("pages").upload_url(size=1)
        place = urlsplit(signed.url)
        return [f"{place.scheme}://{place.netloc}"] if place.netloc else []

    @property
    def _opened_blobs(self) -> BlobService:
        if self._blobs is None:
            raise ConfigurationError(
                "Backburner is not open: use `async with Backburner(…)`"
            )
        return self._blobs

    def _blobs_of(self, claim: Claim) -> AppBlobs:
        app = self._app_of.get(claim.capability)
        if app is None:
            raise PermanentError(
                f"{claim.capability} belongs to no application: use ctx.blobs, or "
                "name it in the capabilities of an App"
            )
        commit = partial(self.engine.transact, claim=claim)
        service = replace(self._opened_blobs, commit=commit)
        return service.of(app, Owner(claim.tenant, claim.user))

    async def find(self, job_id: str, owner: Owner = LOCAL) -> Job:
        """Return an owner's job with its whole input and output."""
        return await self.engine.payloads.whole(await self.engine.find(job_id, owner))

    async def jobs(
        self,
        owner: Owner = LOCAL,
        *,
        queue: str | None = None,
        capability: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[Job]:
        """
        Return an owner's jobs, the newest first, without their inputs and outputs.

        `before` is the `seq` of the last one of the page before.
        """
        where = JobFilter(owner, capability=capability, queue=queue)
        return await self.engine.jobs(where, before=before, limit=limit)

    async def cancel(self, job_id: str, owner: Owner = LOCAL) -> Job:
        """End a job now; asking twice is no error."""
        ended = await self.engine.cancel(job_id, owner)
        return await self.engine.payloads.whole(ended)

    async def signal(
        self, job_id: str, name: str, value: Any = None, owner: Owner = LOCAL
    ) -> bool:
        """
        Tell a job what its handler waits for by `ctx.wait(name)`, now or later.

        The value is stored when this returns. `False`: the same value was stored
        before. `SignalConflict` if another value is stored, if the wait has timed out
        or if the job is over.
        """
        return await self.engine.signal(job_id, name, value, owner)

    async def answer(
        self, job_id: str, name: str, value: Any, owner: Owner = LOCAL
    ) -> bool:
        """
        Answer a question that a handler asked by `ctx.ask_person`.

        `False`: the same answer was stored before. `SignalConflict` if the question is
        not open, `InvalidInput` if the value is none of its choices.
        """
        return await self.engine.answer(job_id, name, value, owner)

    async def questions(self, owner: Visibility = LOCAL) -> Sequence[Question]:
        """Return the newest open questions that jobs of an owner ask people."""
        return await self.engine.questions(owner)

    async def retry(self, job_id: str, owner: Owner = LOCAL) -> Job:
        """Queue a dead letter again."""
        queued = await self.engine.retry(job_id, owner)
        return await self.engine.payloads.whole(queued)

    async def _open(self) -> None:
        settings = self.settings
        store = find_store(settings.store, self._machine, self._faults)
        await store.open()
        self._stack.push_async_callback(store.close)
        await self._migrate_apps(store)
        await self._clock.follow(store.read_clock)
        notifier = store.notifier()
        notifier.open()
        self._stack.callback(notifier.close)
        relay = await self._start_relay(store, notifier)
        self._notifier = relay or notifier
        watch = Watch(store, self._notifier, poll=settings.poll_seconds)
        blobs = find_blobs(settings, self._dice, self._faults)
        payloads = Payloads(blobs, store)
        self._submission = submission = Submission(
            self.registry,
            self._clock,
            self._dice,
            Callbacks(self._reach, are_signed=bool(_webhook_key(settings))),
            self._prices,
        )
        if any(found.model is not None for found in self.registry):
            await self._prices.load()
        self._engine = engine = Engine(
            store=store,
            notifier=self._notifier,
            clock=self._clock,
            registry=self.registry,
            submission=submission,
            watch=watch,
            payloads=payloads,
            faults=self._faults,
            webhook_key=_webhook_key(settings),
            prices=self._prices,
            relay=relay,
            transaction_seconds=settings.transaction_seconds,
        )
        signed_urls = SignedUrls(
            settings.link_secrets or (secrets.token_hex(32),), self._clock.now
        )
        self._blobs = engine.blobs = BlobService(
            rows=store,
            blobs=blobs,
            transact=engine.transact,
            commit=engine.transact,
            clock=self._clock,
            draw=engine.draw,
            limit=settings.blob_limit,
            faults=self._faults,
            urls=UrlSigner(blobs, signed_urls, self._clock, settings.public_url),
            uploaded=self._upload_hooks(),
        )
        payloads.of_app = self._blobs_of
        await engine.budgets.declare(self._budgets)
        await self._start_dead_letter_export(store)
        self._start(engine, submission, watch)
        await self._start_translators(engine)

    def _upload_hooks(self) -> tuple[Uploaded, ...]:
        """Return what the applications do when bytes arrive at a signed URL."""
        return tuple(
            app.uploaded
            for app in self._apps
            if app.uploaded is not None and app.name not in self.unavailable
        )

    async def _start_translators(self, engine: Engine) -> None:
        """Have the applications' translations go on, but for those that stopped."""
        for app in self._apps:
            if app.translates is None or app.name in self.unavailable:
                continue
            capabilities = [found.name for found in (*app.capabilities, *app.own)]
            queues = {queue.name for queue in app.queues_for(self._settings_of(app))}
            queues |= {found.queue for found in (*app.capabilities, *app.own)}
            translator = Translator(
                app.name,
                app.translates,
                Selection(app.translates.types, capabilities, queues),
                engine=engine,
                notifier=self._notifier,
                faults=self._faults,
                poll=self.settings.poll_seconds,
            )
            await translator.start()
            self._stack.push_async_callback(translator.stop)

    async def _migrate_apps(self, store: Store) -> None:
        """Make or update the applications' tables; do without those that fail."""
        for app in self._apps:
            if not app.migrations:
                continue
            outcome = await schemas.migrate(store, app)
            if outcome.problem:
                self.unavailable[app.name] = outcome.problem
                found = (*app.capabilities, *app.own)
                self.registry.withheld |= {capability.queue for capability in found}

    def _start(self, engine: Engine, submission: Submission, watch: Watch) -> None:
        """Begin whatever goes on by itself."""
        settings, store, payloads = self.settings, engine.store, engine.payloads
        engine.batches.start()
        self._stack.push_async_callback(engine.batches.stop)
        upkeep = Upkeep(
            store,
            self._notifier,
            self._clock,
            self._faults,
            _upkeep(settings),
            payloads,
            batches=engine.batches,
            # Every poll, so that this process's clock keeps to the store's.
            read_clock=partial(self._clock.follow, store.read_clock),
        )
        lag = LagMeter()
        lag.start()
        self._stack.callback(lag.stop)
        watch.start()
        self._stack.push_async_callback(watch.stop)
        upkeep.start()
        self._stack.push_async_callback(upkeep.stop)
        scheduler = Scheduler(
            store,
            self._notifier,
            self._faults,
            submission,
            self._schedules,
            payloads=payloads,
            poll=settings.poll_seconds,
        )
        scheduler.start()
        self._stack.push_async_callback(scheduler.stop)
        sweeper = Sweeper(store, payloads, self._clock)
        sweeper.start()
        self._stack.push_async_callback(sweeper.stop)

    async def _start_relay(self, store: Store, notifier: Notifier) -> Relay | None:
        """Connect to the broker, if there is one; without it nothing starts."""
        url = self.settings.transport
        broker = self._given_broker or find_broker(url)
        if broker is None:
            return None
        self._stack.push_async_callback(broker.close)
        try:
            await broker.open()
        except BrokerUnavailable as error:
            raise unreachable(url, error) from None
        broker_health = BrokerHealth(url.partition(":")[0])
        self._broker = broker, broker_health
        relay = Relay(
            store,
            broker,
            notifier,
            self._clock,
            self._faults,
            broker_health,
            look=LOOK_POLLS * self.settings.poll_seconds,
        )
        relay.start()
        self._stack.push_async_callback(relay.stop)
        return relay

    def _make_intake(self) -> Intake | None:
        if self._broker is None:
            return None
        broker, broker_health = self._broker
        readers = {queue: partial(read, self) for queue, read in self._readers.items()}
        foreign = ForeignMessages(
            self.engine, broker, limit=self.settings.body_limit, readers=readers
        )
        sweep = SWEEP_POLLS * self.settings.poll_seconds
        return Intake(broker, broker_health, self._clock, foreign, sweep=sweep)

    def _on_job_failed(self) -> None:
        if self._dead_letter_exporter is not None:
            self._dead_letter_exporter.poke()

    async def _start_dead_letter_export(self, store: Store) -> None:
        """Have the broker show what fails, if there is one."""
        if self._broker is None:
            return
        exporter = f"instance_{self._dice.uuid(self._clock.now())}"
        self._dead_letter_exporter = DeadLetterExporter(
            store, *self._broker, self._clock, self._faults, exporter
        )
        await self._dead_letter_exporter.start()
        self._stack.push_async_callback(self._dead_letter_exporter.stop)

    def _engage(self) -> None:
        """Have providers of models ready, and what is known of their limits told."""
        settings, given = self.settings, self._ai
        chains, fallbacks = ({}, {}) if given is not None else self._find_providers()
        chain = given if isinstance(given, Sequence) else [given] if given else []
        self._providers = providers = Providers(
            chain,
            self._clock,
            settings.ai_seconds,
            self._codes,
            chains,
            self._model_lanes,
            fallbacks,
        )
        self._stack.push_async_callback(providers.close)
        for lane in _lanes(settings, providers):
            if lane.name not in self.registry.lanes:
                self.registry.pace(lane)

    def _find_providers(
        self,
    ) -> tuple[
        Mapping[Purpose, Sequence[Provider]],
        Mapping[tuple[str, Purpose], Sequence[Provider]],
    ]:
        """Return the providers that are set, and applications' own where none is."""
        chains = find_providers(self.settings, self._clock)
        made: dict[str, Provider] = {}
        own: dict[tuple[str, Purpose], Sequence[Provider]] = {}
        uses = [(app, use) for app in self._apps for use in app.models if use.fallback]
        for app, use in uses:
            if is_chosen(self.settings, use.purpose, chains[use.purpose]):
                continue
            name = use.fallback
            if name not in made:
                made[name] = find_provider(self.settings, name, self._clock)
            for found in (*app.capabilities, *app.own):
                own[found.name, use.purpose] = [made[name]]
        return chains, own

    def _deliver(self) -> None:
        """Have this worker send webhooks, if it can sign them."""
        settings, engine = self.settings, self.engine
        key = _webhook_key(settings)
        if not key:
            return
        # Whoever merely submits need not load what it brings.
        from backburner.egress.client import GuardedEgress  # noqa: PLC0415

        egress = GuardedEgress(
            self._reach,
            connect_seconds=settings.webhook_connect_seconds,
            total_seconds=settings.webhook_seconds,
        )
        self._stack.push_async_callback(egress.close)
        self._callback_sender = CallbackSender(self._reach, key, self._clock, egress)
        deliver = Deliver(
            WebhookSender(egress, key, self._clock),
            ReceiverLimits(self._clock, self._dice, slots=settings.slots),
            self._clock,
            self._dice,
        )
        messages = Messages(engine.store)
        self.registry.own(
            delivering(deliver, engine.endpoints, messages, self._deliveries)
        )

    def _outbound(self) -> Http:
        """Return what sends the HTTP requests of handlers, opened when first asked."""
        if self._http is None:
            from backburner.egress.fetching import GuardedFetcher  # noqa: PLC0415

            settings = self.settings
            limits = HttpLimits(settings.http_limit, settings.http_seconds)
            fetcher = GuardedFetcher(
                # Not what applications add for their own callbacks: a handler may be
                # given the URL by a user.
                settings.reach,
                most=limits.bytes,
                connect_seconds=settings.webhook_connect_seconds,
            )
            self._stack.push_async_callback(fetcher.close)
            self._http = Http(fetcher, self._clock, limits)
        return self._http

    def _heartbeat(self, lost: Callable[[str], None]) -> ThreadHeartbeat:
        pulse = Pulse(
            self.engine.store.heart(),
            self._clock,
            lease_ms=int(self.settings.lease_seconds * 1000),
            lost=lost,
            blocked_ms=self.settings.blocked_seconds * 1000,
        )
        return ThreadHeartbeat(pulse, every=self.settings.beat_seconds)


def _lanes(settings: Settings, providers: Providers) -> Sequence[Lane]:
    """Return the lanes of the models that are set, if their limits are."""
    requests, at_once = settings.ai_requests or None, settings.ai_at_once or None
    spacing = timedelta(milliseconds=settings.ai_spacing_ms)
    if requests is None and at_once is None and not spacing:
        return []
    names = {
        lane_name(provider.name, getattr(provider.models, purpose), provider.credential)
        for purpose in PURPOSES
        for provider in providers.of(purpose)
        if provider.is_paced
    }
    return [Lane(name, requests, None, at_once, spacing) for name in sorted(names)]


@asynccontextmanager
async def open_asker(
    settings: Settings | None = None, **overrides: Any
) -> AsyncIterator[Asker]:
    """
    Ask models in a program that has no store: no lane, no ledger but `calls`.

    Without `settings` the environment is read; `overrides` come before it.
    """
    settings, clock = settings or read(**overrides), SystemClock()
    chains = find_providers(settings, clock)
    providers = Providers([], clock, settings.ai_seconds, by_purpose=chains)
    try:
        yield Asker(providers)
    finally:
        await providers.close()


@asynccontextmanager
async def open_keys(settings: Settings) -> AsyncIterator[Keys]:
    """Open the store for its keys only; nothing runs beside."""
    machine = SystemClock()
    clock, store = StoreClock(machine), find_store(settings.store, machine, NoFaults())
    await store.open()
    try:
        await clock.follow(store.read_clock)
        yield _keys(store, settings, clock)
    finally:
        await store.close()


def _keys(store: KeyStore, settings: Settings, clock: Clock) -> Keys:
    pepper = settings.key_pepper.get_secret_value()
    return Keys(store, clock, SystemDice(), pepper=pepper)


def _webhook_key(settings: Settings) -> bytes:
    return settings.webhook_secret.get_secret_value().encode()


def _limits(settings: Settings) -> Limits:
    return Limits(
        crashes=settings.crash_limit,
        throttled=timedelta(hours=settings.throttle_limit_hours),
    )


def _upkeep(settings: Settings) -> UpkeepOptions:
    return UpkeepOptions(
        poll=settings.poll_seconds,
        lease=settings.lease,
        rescue_every=settings.beat_seconds,
        prune_after=PRUNE_AFTER,
        limits=_limits(settings),
        retention=Retention(
            succeeded=timedelta(days=settings.keep_succeeded_days),
            failed=timedelta(days=settings.keep_failed_days),
            cancelled=timedelta(days=settings.keep_cancelled_days),
        ),
        usage=timedelta(days=settings.keep_usage_days),
        published=timedelta(days=settings.keep_event_days),
    )
