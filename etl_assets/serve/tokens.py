"""Bearer tokens: `<home>/tokens.json`, with the SHA-256 of each.

A token is 32 random bytes, so that a plain hash of it cannot be guessed. Several tokens of one client are
valid at a time: add the new one, change the client, revoke the old one.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import hashlib
import hmac
import json
import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from etl_assets.delta.log.durability import write_durably
from etl_assets.errors import NotFound, SettingsError
from etl_assets.pipelines.origin import DEFAULT_TENANT
from etl_assets.placement.policy import covers

PREFIX = "eta_"
EVERY = "*"
_BYTES = 32


class Scope(StrEnum):
    """What a token allows."""

    INGEST = "ingest"
    """Send events."""
    READ = "read"
    """See pipelines, tables, dead letters and traces."""
    OPERATE = "operate"
    """Run, pause, resume, cancel and retry pipelines; includes `read`."""
    ADMIN = "admin"
    """Define pipelines; includes `operate`."""

    @property
    def included(self) -> frozenset[str]:
        """This scope, and those that it includes."""
        ranked = (Scope.READ, Scope.OPERATE, Scope.ADMIN)
        return frozenset(ranked[: ranked.index(self) + 1] if self in ranked else (self,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token, without its secret.

    Attributes:
        id: Its id, which is not secret.
        client: Who has it. Tokens of one client share `Idempotency-Key`s.
        hash: SHA-256 of the token.
        scopes: What it allows.
        tenant: The tenant that it belongs to.
        pipelines: Names of pipelines, or `*` for all.
        domains: Failure domains that it sends from, by exact or outer name, or `*` for any.
        created_at: When it was added (ISO 8601, UTC).
        expires_at: When it ends; None: never.
    """

    id: str
    client: str
    hash: str
    created_at: str
    scopes: tuple[str, ...] = (Scope.INGEST.value,)
    tenant: str = DEFAULT_TENANT
    pipelines: tuple[str, ...] = (EVERY,)
    domains: tuple[str, ...] = (EVERY,)
    expires_at: str | None = None

    def has(self, scope: Scope) -> bool:
        """Return whether one of its scopes is, or includes, a scope. A scope that is not known has none."""
        return any(scope in Scope(each).included for each in self.scopes if each in tuple(Scope))

    def covers(self, pipeline: str) -> bool:
        """Return whether a pipeline is one of those that it is bound to."""
        return EVERY in self.pipelines or pipeline in self.pipelines

    def allows(self, scope: Scope, pipeline: str) -> bool:
        """Return whether it allows something with a pipeline."""
        return self.has(scope) and self.covers(pipeline)

    @property
    def is_bound_to_pipelines(self) -> bool:
        """Whether it is bound to some pipelines."""
        return EVERY not in self.pipelines

    @property
    def is_bound(self) -> bool:
        """Whether it is bound to failure domains."""
        return EVERY not in self.domains

    def sends_from(self, domain: str) -> bool:
        """Return whether a failure domain is one of its own."""
        return any(covers(each, domain) for each in self.domains)

    def has_expired(self, now: dt.datetime) -> bool:
        """Return whether its time is over."""
        return self.expires_at is not None and dt.datetime.fromisoformat(self.expires_at) <= now


class Tokens:
    """The tokens of an installation. A change of the file counts from the next request on."""

    def __init__(self, home: Path) -> None:
        self._file = home / "tokens.json"
        self._stamp: tuple[int, int, int] | None = None
        self._known: tuple[Token, ...] = ()

    def all(self) -> tuple[Token, ...]:
        """Return all tokens.

        Raises:
            SettingsError: the file is not what was written.
        """
        try:
            status = self._file.stat()
        except FileNotFoundError:
            return ()
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        if stamp != self._stamp:
            self._known, self._stamp = _read(self._file), stamp
        return self._known

    def of(self, secret: str, now: dt.datetime) -> Token | None:
        """Return the valid token of a secret. Takes equally long whichever token it is."""
        wanted = _hash(secret)
        found = None
        for each in self.all():
            if hmac.compare_digest(each.hash, wanted):
                found = each
        return None if found is None or found.has_expired(now) else found

    def add(
        self,
        client: str,
        *,
        now: dt.datetime,
        tenant: str = DEFAULT_TENANT,
        pipelines: Sequence[str] = (EVERY,),
        domains: Sequence[str] = (EVERY,),
        scopes: Sequence[Scope] = (Scope.INGEST,),
        expires_at: dt.datetime | None = None,
    ) -> tuple[Token, str]:
        """Add a token, and return it with its secret, which is stored nowhere."""
        secret = PREFIX + secrets.token_urlsafe(_BYTES)
        token = Token(
            id=secrets.token_hex(4),
            client=client,
            hash=_hash(secret),
            tenant=tenant,
            pipelines=tuple(pipelines),
            domains=tuple(domains),
            scopes=tuple(each.value for each in scopes),
            created_at=now.isoformat(timespec="seconds"),
            expires_at=None if expires_at is None else expires_at.isoformat(timespec="seconds"),
        )
        with self._alone():
            self._write((*self.all(), token))
        return token, secret

    def revoke(self, token_id: str) -> Token:
        """Remove a token.

        Raises:
            NotFound: there is none of that id.
        """
        with self._alone():
            known = self.all()
            found = next((each for each in known if each.id == token_id), None)
            if found is None:
                raise NotFound(
                    f"there is no token {token_id}",
                    fix="name one of `etl-assets tokens list`",
                    token=token_id,
                )
            self._write(tuple(each for each in known if each is not found))
        return found

    @contextmanager
    def _alone(self) -> Generator[None]:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self, tokens: Sequence[Token]) -> None:
        content = {"tokens": [asdict(each) for each in tokens]}
        write_durably(self._file, (json.dumps(content, indent=2) + "\n").encode())


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _read(file: Path) -> tuple[Token, ...]:
    try:
        return tuple(_token(each) for each in json.loads(file.read_text("utf-8"))["tokens"])
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"{file} is not what `etl-assets tokens` wrote there: {error}",
            fix="correct it, or remove it and add the tokens again",
            field=str(file),
        ) from error


def _token(found: dict[str, Any]) -> Token:
    token = Token(**found)
    return replace(
        token, scopes=tuple(token.scopes), pipelines=tuple(token.pipelines), domains=tuple(token.domains)
    )
