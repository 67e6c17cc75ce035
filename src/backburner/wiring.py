"""The composition root: settings and declarations become the parts of an instance."""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

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
from backburner.clock import StoreClock, SystemClock, SystemDice
from backburner.declarations import Declarations, capabilities_of
from backburner.domain.ai import Purpose
from backburner.domain.errors import (
    BrokerUnavailable,
    ConfigurationError,
    PermanentError,
)
from backburner.domain.events.translation import Selection
from backburner.domain.jobs.job import Claim, Owner
from backburner.domain.jobs.retry import RetryPolicy
from backburner.domain.jobs.transitions import Limits
from backburner.domain.lanes.lane import Lane, lane_name
from backburner.domain.webhooks.address import Reach
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
from backburner.engine.groups.bulk import bulk
from backburner.engine.maintenance.scheduler import Scheduler
from backburner.engine.maintenance.translating import Translator
from backburner.engine.maintenance.upkeep import Upkeep, UpkeepOptions
from backburner.engine.models.asking import Asker, Providers
from backburner.engine.observability.vitals import LagMeter, resident_memory
from backburner.engine.run.blocking import BlockageLog
from backburner.engine.run.heartbeat import Pulse, ThreadHeartbeat
from backburner.engine.run.inline import InlineRunner
from backburner.engine.run.outbound import Http, HttpLimits
from backburner.engine.run.parents import telling_parents
from backburner.engine.run.runtime import Runtime
from backburner.engine.run.services import Services, Submit
from backburner.engine.run.worker import Worker, WorkerOptions
from backburner.engine.submit.submission import Callbacks, Submission
from backburner.engine.watch import Watch
from backburner.engine.webhooks.callback_sender import CallbackSender
from backburner.engine.webhooks.deliveries import delivering
from backburner.engine.webhooks.delivery import Deliver, WebhookSender
from backburner.engine.webhooks.messages import Messages
from backburner.engine.webhooks.receiver_limits import ReceiverLimits
from backburner.ports.ai import Provider
from backburner.ports.broker import Broker
from backburner.ports.clock import Clock
from backburner.ports.faults import Faults, NoFaults
from backburner.ports.log import log
from backburner.ports.notifier import Notifier
from backburner.ports.store import Store
from backburner.ports.store.keys import KeyStore
from backburner.ports.store.maintenance import Retention
from backburner.ports.store.workers import Vitals
from backburner.prices import ListPrices, read_overrides
from backburner.settings import Settings, read

T = TypeVar("T")

PRUNE_AFTER = 5.0
"""Seconds after which a new process first deletes old rows."""
LOOK_POLLS = 3
"""With a broker, after how many polls it is compared with the store …"""
SWEEP_POLLS = 15
"""… and after how many polls workers claim jobs without messages."""


class Host(Protocol):
    """The open instance, as handlers and applications use it."""

    @property
    def submit(self) -> Submit:
        """Submits a job and returns its ticket."""
        ...


class Parts:
    """The parts of one instance: opened and closed together, in order."""

    def __init__(  # noqa: PLR0913 - what a caller may replace
        self,
        settings: Settings,
        given: Declarations,
        reach: Reach,
        *,
        faults: Faults | None,
        deliveries: RetryPolicy,
        broker: Broker | None,
        ai: Provider | Sequence[Provider] | None,
    ) -> None:
        """Take the arguments of `Backburner`, and where webhooks may be sent."""
        self.settings = settings
        self._given = given
        self._reach = reach
        self._prices = ListPrices(read_overrides(settings.prices))
        self._machine = SystemClock()
        self.clock = StoreClock(self._machine)
        self._dice = SystemDice()
        self._faults = faults or NoFaults()
        self._deliveries = deliveries
        self._given_broker = broker
        self._broker: tuple[Broker, BrokerHealth] | None = None
        self._dead_letter_exporter: DeadLetterExporter | None = None
        self._ai = ai
        self._callback_sender: CallbackSender | None = None
        self._stack = AsyncExitStack()
        self._forget()

    def _forget(self) -> None:
        self._engine: Engine | None = None
        self._providers: Providers | None = None
        self._blobs: BlobService | None = None
        self._keys: Keys | None = None
        self._http: Http | None = None
        self._lag: LagMeter | None = None

    async def open(self) -> None:
        """Open the store and start all background work, or nothing."""
        try:
            self._engage()
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise

    async def close(self) -> None:
        """Stop and close everything in reverse order."""
        await self._stack.aclose()
        self._forget()

    @property
    def engine(self) -> Engine:
        """The engine, while the instance is open."""
        return _opened(self._engine)

    @property
    def providers(self) -> Providers:
        """The model providers, while the instance is open."""
        return _opened(self._providers)

    @property
    def blobs(self) -> BlobService:
        """The blobs of applications, while the instance is open."""
        return _opened(self._blobs)

    @property
    def keys(self) -> Keys:
        """The API keys, while the instance is open."""
        if self._keys is None:
            self._keys = _keys(self.engine.store, self.settings, self.clock)
        return self._keys

    def callback_sender(self) -> CallbackSender:
        """Return the signer of applications' callbacks; it cannot send them."""
        return CallbackSender(self._reach, _webhook_key(self.settings), self.clock)

    def inline_runner(self, submit: Submit) -> InlineRunner:
        """Return the runner of capabilities without a job."""
        services = Services(
            submit,
            engine=self.engine,
            providers=self._providers,
            app_settings=self._given.settings,
            http=self.outbound,
        )
        return InlineRunner(services, self.engine.budgets, self._prices)

    def make_worker(self, host: Host) -> Worker:
        """Return a worker for the jobs of this instance, not started yet."""
        settings, registry = self.settings, self._given.registry
        self._deliver()
        registry.own(telling_parents(self.engine), has_queue=False)
        if not registry.served() and not settings.queues:
            raise ConfigurationError(
                "a worker needs capabilities: name applications with --app or "
                "BACKBURNER_APPS, or pass `capabilities` or `apps` to Backburner"
            )
        registry.own(bulk(self.engine))
        for queue in registry.check_queues(settings.queues):
            log.warning("no capability of this worker uses the queue", queue=queue)
        runtime = Runtime(
            store=self.engine.store,
            notifier=self._notifier,
            clock=self.clock,
            dice=self._dice,
            faults=self._faults,
            registry=registry,
            submit=host.submit,
            engine=self.engine,
            payloads=self.engine.payloads,
            prices=self._prices,
            on_job_failed=self._on_job_failed,
            intake=self._make_intake(host),
            providers=self._providers,
            callback_sender=self._callback_sender,
            app_settings=self._given.settings,
            http=self.outbound,
        )
        options = WorkerOptions(
            slots=settings.slots,
            queues=settings.queues,
            poll=settings.poll_seconds,
            beat=settings.beat_seconds,
            patience=settings.lane_patience_seconds,
            paid_patience=settings.lane_paid_patience_seconds,
            limits=_limits(settings),
        )
        return Worker(runtime, options, self._heartbeat)

    def _blobs_of(self, claim: Claim) -> AppBlobs:
        app = self._given.app_of.get(claim.capability)
        if app is None:
            raise PermanentError(
                f"{claim.capability} belongs to no application: use ctx.blobs, or "
                "name it in the capabilities of an App"
            )
        commit = partial(self.engine.transact, claim=claim)
        service = replace(self.blobs, commit=commit)
        return service.of(app, Owner(claim.tenant, claim.user))

    async def _open(self) -> None:
        settings = self.settings
        store = find_store(settings.store, self._machine, self._faults)
        await store.open()
        self._stack.push_async_callback(store.close)
        await self._migrate_apps(store)
        await self.clock.follow(store.read_clock)
        notifier = store.notifier()
        notifier.open()
        self._stack.callback(notifier.close)
        relay = await self._start_relay(store, notifier)
        self._notifier = relay or notifier
        watch = Watch(store, self._notifier, poll=settings.poll_seconds)
        blobs = find_blobs(settings, self._dice, self._faults)
        payloads = Payloads(blobs, store)
        self.submission = submission = Submission(
            self._given.registry,
            self.clock,
            self._dice,
            Callbacks(self._reach, are_signed=bool(_webhook_key(settings))),
            self._prices,
        )
        if any(found.model is not None for found in self._given.registry):
            await self._prices.load()
        self._engine = engine = Engine(
            store=store,
            notifier=self._notifier,
            clock=self.clock,
            registry=self._given.registry,
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
            settings.link_secrets or (secrets.token_hex(32),), self.clock.now
        )
        self._blobs = engine.blobs = BlobService(
            rows=store,
            blobs=blobs,
            transact=engine.transact,
            commit=engine.transact,
            clock=self.clock,
            draw=engine.draw,
            limit=settings.blob_limit,
            faults=self._faults,
            urls=UrlSigner(blobs, signed_urls, self.clock, settings.public_url),
            uploaded=self._given.upload_hooks(),
        )
        payloads.of_app = self._blobs_of
        await engine.budgets.declare(self._given.budgets)
        await self._start_dead_letter_export(store)
        self._start(engine, submission, watch)
        await self._start_translators(engine)

    async def _start_translators(self, engine: Engine) -> None:
        """Start the applications' translations, except unavailable ones."""
        for app in self._given.apps:
            if app.translates is None or app.name in self._given.unavailable:
                continue
            capabilities = [found.name for found in capabilities_of(app)]
            translator = Translator(
                app.name,
                app.translates,
                Selection(
                    app.translates.types, capabilities, self._given.queues_of(app)
                ),
                engine=engine,
                notifier=self._notifier,
                faults=self._faults,
                poll=self.settings.poll_seconds,
            )
            await translator.start()
            self._stack.push_async_callback(translator.stop)

    async def _migrate_apps(self, store: Store) -> None:
        """Create or update the applications' tables; disable applications that fail."""
        for app in self._given.apps:
            if not app.migrations:
                continue
            outcome = await schemas.migrate(store, app)
            if outcome.problem:
                self._given.withhold(app, outcome.problem)

    def _start(self, engine: Engine, submission: Submission, watch: Watch) -> None:
        """Start all background work."""
        settings, store, payloads = self.settings, engine.store, engine.payloads
        engine.batches.start()
        self._stack.push_async_callback(engine.batches.stop)
        upkeep = Upkeep(
            store,
            self._notifier,
            self.clock,
            self._faults,
            _upkeep(settings),
            payloads,
            batches=engine.batches,
            # At every poll, so that this process's clock follows the store's.
            read_clock=partial(self.clock.follow, store.read_clock),
        )
        self._lag = LagMeter(self.clock)
        self._lag.start()
        self._stack.callback(self._lag.stop)
        watch.start()
        self._stack.push_async_callback(watch.stop)
        upkeep.start()
        self._stack.push_async_callback(upkeep.stop)
        scheduler = Scheduler(
            store,
            self._notifier,
            self._faults,
            submission,
            self._given.schedules,
            payloads=payloads,
            poll=settings.poll_seconds,
        )
        engine.scheduler = scheduler
        scheduler.start()
        self._stack.push_async_callback(scheduler.stop)
        sweeper = Sweeper(store, payloads, self.clock)
        sweeper.start()
        self._stack.push_async_callback(sweeper.stop)

    async def _start_relay(self, store: Store, notifier: Notifier) -> Relay | None:
        """Connect to the broker, if one is configured; raise if that fails."""
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
            self.clock,
            self._faults,
            broker_health,
            look=LOOK_POLLS * self.settings.poll_seconds,
        )
        relay.start()
        self._stack.push_async_callback(relay.stop)
        return relay

    def _make_intake(self, host: Host) -> Intake | None:
        if self._broker is None:
            return None
        broker, broker_health = self._broker
        read_by = self._given.readers
        readers = {queue: partial(read, host) for queue, read in read_by.items()}
        foreign = ForeignMessages(
            self.engine, broker, limit=self.settings.body_limit, readers=readers
        )
        sweep = SWEEP_POLLS * self.settings.poll_seconds
        return Intake(broker, broker_health, self.clock, foreign, sweep=sweep)

    def _on_job_failed(self) -> None:
        if self._dead_letter_exporter is not None:
            self._dead_letter_exporter.poke()

    async def _start_dead_letter_export(self, store: Store) -> None:
        """Start the export of dead letters, if there is a broker."""
        if self._broker is None:
            return
        exporter = f"instance_{self._dice.uuid(self.clock.now())}"
        self._dead_letter_exporter = DeadLetterExporter(
            store, *self._broker, self.clock, self._faults, exporter
        )
        await self._dead_letter_exporter.start()
        self._stack.push_async_callback(self._dead_letter_exporter.stop)

    def _engage(self) -> None:
        """Create the model providers, and declare their known limits."""
        settings, given = self.settings, self._ai
        chains, fallbacks = ({}, {}) if given is not None else self._find_providers()
        chain = given if isinstance(given, Sequence) else [given] if given else []
        self._providers = providers = Providers(
            chain,
            self.clock,
            settings.ai_seconds,
            self._given.codes,
            chains,
            self._given.model_lanes,
            fallbacks,
        )
        self._stack.push_async_callback(providers.close)
        for lane in _lanes(settings, providers):
            if lane.name not in self._given.registry.lanes:
                self._given.registry.pace(lane)

    def _find_providers(
        self,
    ) -> tuple[
        Mapping[Purpose, Sequence[Provider]],
        Mapping[tuple[str, Purpose], Sequence[Provider]],
    ]:
        """Return the configured providers, and those of applications without any."""
        chains = find_providers(self.settings, self.clock)
        made: dict[str, Provider] = {}
        fallbacks: dict[tuple[str, Purpose], Sequence[Provider]] = {}
        uses = [
            (app, use) for app in self._given.apps for use in app.models if use.fallback
        ]
        for app, use in uses:
            if is_chosen(self.settings, use.purpose, chains[use.purpose]):
                continue
            name = use.fallback
            if name not in made:
                made[name] = find_provider(self.settings, name, self.clock)
            for found in capabilities_of(app):
                fallbacks[found.name, use.purpose] = [made[name]]
        return chains, fallbacks

    def _deliver(self) -> None:
        """Register the delivery of webhooks, if this process can sign them."""
        settings, engine = self.settings, self.engine
        key = _webhook_key(settings)
        if not key:
            return
        # A process that only submits need not load the module.
        from backburner.egress.client import GuardedEgress  # noqa: PLC0415

        egress = GuardedEgress(
            self._reach,
            connect_seconds=settings.webhook_connect_seconds,
            total_seconds=settings.webhook_seconds,
        )
        self._stack.push_async_callback(egress.close)
        self._callback_sender = CallbackSender(self._reach, key, self.clock, egress)
        deliver = Deliver(
            WebhookSender(egress, key, self.clock),
            ReceiverLimits(self.clock, self._dice, slots=settings.slots),
            self.clock,
            self._dice,
        )
        messages = Messages(engine.store)
        self._given.registry.own(
            delivering(deliver, engine.endpoints, messages, self._deliveries)
        )

    def outbound(self) -> Http:
        """Return the HTTP client of handlers, created on first use."""
        if self._http is None:
            from backburner.egress.fetching import GuardedFetcher  # noqa: PLC0415

            settings = self.settings
            limits = HttpLimits(settings.http_limit, settings.http_seconds)
            fetcher = GuardedFetcher(
                # Without what applications allow for their own callbacks: a handler may
                # be given the URL by a user.
                settings.reach,
                most=limits.bytes,
                connect_seconds=settings.webhook_connect_seconds,
            )
            self._stack.push_async_callback(fetcher.close)
            self._http = Http(fetcher, self.clock, limits)
        return self._http

    def _heartbeat(
        self,
        lost: Callable[[str], None],
        running: Callable[[], int],
        current: Callable[[], Claim | None],
    ) -> ThreadHeartbeat:
        lag = _opened(self._lag)

        def vitals() -> Vitals:
            return Vitals(running(), lag.worst_ms(), resident_memory())

        pulse = Pulse(
            self.engine.store.heart(),
            self.clock,
            lease_ms=int(self.settings.lease_seconds * 1000),
            lost=lost,
            vitals=vitals,
            blocked_ms=self.settings.blocked_seconds * 1000,
        )
        look = BlockageLog(lag, current).look
        return ThreadHeartbeat(pulse, every=self.settings.beat_seconds, look=look)


def _opened(part: T | None) -> T:
    if part is None:
        raise ConfigurationError(
            "Backburner is not open: use `async with Backburner(…)`"
        )
    return part


def _lanes(settings: Settings, providers: Providers) -> Sequence[Lane]:
    """Return the lanes of the configured models, if limits are set."""
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
    Yield an asker for a program without a store: without lanes and ledger.

    Without `settings` the environment is read; `overrides` take precedence over it.
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
    """Open the store for API keys only, without background work."""
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
