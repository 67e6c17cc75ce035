"""Creates, verifies, caches and revokes API keys."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from backburner.domain.auth import access
from backburner.domain.auth import key as keys
from backburner.domain.auth.access import Grant
from backburner.domain.auth.key import ApiKey
from backburner.domain.errors import (
    ConfigurationError,
    FieldError,
    InvalidInput,
    KeyNotFound,
    StoreUnavailable,
)
from backburner.domain.jobs.job import Instant
from backburner.ports.clock import Clock, Dice
from backburner.ports.store.keys import AuditEntry, KeyStore

FRESH_MS: Final = 5_000
"""For how long a key is cached; revocations elsewhere take effect after that."""
USED_MS: Final = 60_000
"""How often the use of a key is recorded."""
MAX_NAME: Final = 200
NOTHING: Final = "0" * 64


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts and in which tenant, for the audit log."""

    name: str
    tenant: str
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class NewKey:
    """The attributes of a requested key."""

    name: str
    scopes: frozenset[str] = access.DEFAULT_SCOPES
    user: str | None = None
    expires_at: Instant | None = None


class Keys:
    """The API keys of an instance. Without a pepper there are none."""

    def __init__(
        self, store: KeyStore, clock: Clock, dice: Dice, *, pepper: str
    ) -> None:
        self._store = store
        self._clock = clock
        self._dice = dice
        self._pepper = pepper.encode()
        self._known: dict[str, tuple[Instant, ApiKey]] = {}

    async def create(self, wanted: NewKey, actor: Actor) -> tuple[ApiKey, str]:
        """Store a key for the actor's tenant; return it and its text, shown once."""
        now = self._clock.now()
        self._require_pepper()
        _check(wanted, actor.tenant, now)
        text = keys.write(keys.new_id(int(self._dice.token(), 16)), self._secret())
        shown = keys.read(text)
        assert shown is not None  # noqa: S101 - we wrote it
        key = ApiKey(
            id=shown.id,
            name=wanted.name,
            tenant=actor.tenant,
            user=wanted.user,
            scopes=wanted.scopes,
            digest=keys.digest(self._pepper, shown),
            created_at=now,
            expires_at=wanted.expires_at,
        )
        await self._store.add_key(key, _entry(actor, "key.created", key.id, now))
        return key, text

    async def find(self, key_id: str, tenant: str) -> ApiKey:
        """Return a key of a tenant, also an expired or revoked one."""
        found = await self._store.find_key(key_id)
        if found is None or found.tenant != tenant:
            raise KeyNotFound("the key does not exist or belongs to another owner")
        return found

    async def tenant_of(self, key_id: str) -> str | None:
        """Return the tenant of a key; `None` if there is no such key."""
        found = await self._store.find_key(key_id)
        return None if found is None else found.tenant

    async def revoke(self, key_id: str, actor: Actor) -> None:
        """Revoke a key of the actor's tenant; repeating it is no error."""
        await self.find(key_id, actor.tenant)
        entry = _entry(actor, "key.revoked", key_id, self._clock.now())
        await self._store.revoke_key(key_id, entry)
        self._known.pop(key_id, None)

    async def list(self, tenant: str | None = None) -> Sequence[ApiKey]:
        """Return the keys of a tenant, or of all, the oldest first."""
        return await self._store.list_keys(tenant)

    async def has_good(self) -> bool:
        """Say whether there is any valid key."""
        now = self._clock.now()
        return any(key.is_good(now) for key in await self._store.list_keys())

    async def check(self, text: str) -> ApiKey | None:
        """Return the key for a key's text, if it is valid."""
        shown = keys.read(text)
        if shown is None or not self._pepper:
            return None
        made = keys.digest(self._pepper, shown)
        key = await self._find(shown.id)
        # Compare in any case: the time must not show whether the key exists.
        is_ours = keys.is_same(NOTHING if key is None else key.digest, made)
        now = self._clock.now()
        if key is None or not is_ours or not key.is_good(now):
            return None
        await self._note_use(key, now)
        return key

    async def usable(self, key_id: str) -> ApiKey | None:
        """Return a key that was verified before, if it is still valid."""
        key, now = await self._find(key_id), self._clock.now()
        if key is None or not key.is_good(now):
            return None
        await self._note_use(key, now)
        return key

    async def is_good(self, key_id: str) -> bool:
        """Say whether a key is still valid; revocations take effect within seconds."""
        key = await self._find(key_id)
        return key is not None and key.is_good(self._clock.now())

    async def _find(self, key_id: str) -> ApiKey | None:
        now = self._clock.monotonic()
        known = self._known.get(key_id)
        if known is not None and now - known[0] < FRESH_MS:
            return known[1]
        key = await self._store.find_key(key_id)
        if key is None:
            self._known.pop(key_id, None)
        else:
            self._known[key_id] = (now, key)
        return key

    async def _note_use(self, key: ApiKey, now: Instant) -> None:
        since = now - USED_MS
        if key.last_used_at is not None and key.last_used_at > since:
            return
        # Before the write, so that concurrent requests do not write too.
        if key.id in self._known:
            read_at, _ = self._known[key.id]
            self._known[key.id] = (read_at, replace(key, last_used_at=now))
        with suppress(StoreUnavailable):
            await self._store.touch_key(key.id, now=now, unless_since=since)

    def _secret(self) -> bytes:
        drawn = "".join(self._dice.token() for _ in range(keys.SECRET_BYTES // 8))
        return bytes.fromhex(drawn)

    def _require_pepper(self) -> None:
        if not self._pepper:
            raise ConfigurationError(
                "BACKBURNER_KEY_PEPPER is not set: API keys are hashed with it; "
                "`openssl rand -hex 32` makes one"
            )


def _check(wanted: NewKey, tenant: str, now: Instant) -> None:
    if not 0 < len(wanted.name) <= MAX_NAME or not wanted.name.isprintable():
        raise _refused("name", f"must be 1 to {MAX_NAME} printable characters")
    unknown = wanted.scopes - access.SCOPES
    if unknown or not wanted.scopes:
        known = ", ".join(sorted(access.SCOPES))
        raise _refused("scopes", f"must be some of {known}")
    if wanted.user is not None and not is_user(wanted.user):
        raise _refused("user", "must be 1 to 200 visible ASCII characters")
    reason = access.impossible(Grant(tenant, wanted.scopes, wanted.user))
    if reason is not None:
        raise _refused("scopes", reason)
    if wanted.expires_at is not None and wanted.expires_at <= now:
        raise _refused("expires_at", "must be in the future")


def is_user(text: str) -> bool:
    """Say whether a text is a valid user name."""
    is_visible = text.isascii() and text.isprintable() and " " not in text
    return 0 < len(text) <= MAX_NAME and is_visible


def _refused(path: str, message: str) -> InvalidInput:
    return InvalidInput(f"{path}: {message}", [FieldError(path, message)])


def _entry(actor: Actor, action: str, target: str, now: Instant) -> AuditEntry:
    return AuditEntry(now, actor.tenant, actor.name, action, target, actor.request_id)
