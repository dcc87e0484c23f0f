"""What the routes share: settings, tokens, pipelines, and the journal."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from etl_assets.control.control_plane import ControlPlane
from etl_assets.installed import Installed
from etl_assets.pipelines.origin import DEFAULT_TENANT, DeclarationOrigin
from etl_assets.pipelines.source_specs import HttpSource
from etl_assets.serve.body_bytes import BodyBytes
from etl_assets.serve.commit_watch import CommitWatch
from etl_assets.serve.group_commit import GroupCommit
from etl_assets.serve.idempotency import Keys
from etl_assets.serve.journal import Journal
from etl_assets.serve.outcomes import OutcomeReader
from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.rates import Rates
from etl_assets.serve.request_body import BodyLimits
from etl_assets.serve.sessions import Sessions
from etl_assets.serve.table_reads import TableReads
from etl_assets.serve.tokens import Token, Tokens
from etl_assets.settings import Settings

if TYPE_CHECKING:
    from etl_assets.serve.oidc import OidcTokens

_PIPELINES_SECONDS = 1.0


def now_utc() -> dt.datetime:
    """Return the time."""
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOwner:
    """Whose pipeline it is, and where its declaration comes from."""

    tenant: str
    origin: DeclarationOrigin


@dataclass(kw_only=True)
class Service:
    """The state of a server process.

    Attributes:
        settings: The platform file.
        journal: The journal.
        clock: Returns the time.
        is_ending: Whether the process ends: it accepts nothing any more.
    """

    settings: Settings
    journal: Journal
    clock: Callable[[], dt.datetime] = now_utc
    is_ending: bool = False
    tokens: Tokens = field(init=False)
    sessions: Sessions = field(init=False)
    commits: GroupCommit = field(init=False)
    watch: CommitWatch = field(init=False)
    keys: Keys = field(init=False)
    rates: Rates = field(init=False)
    bodies: BodyBytes = field(init=False)
    reads: TableReads = field(init=False, default_factory=TableReads)
    store_calls: TableReads = field(init=False, default_factory=lambda: TableReads(what="the control store"))
    oidc: OidcTokens | None = field(init=False, default=None)
    issuer_calls: TableReads = field(
        init=False, default_factory=lambda: TableReads(what="the issuer", threads=4, max_waiting=64)
    )
    trials: TableReads = field(
        init=False, default_factory=lambda: TableReads(what="systems outside", max_waiting=8)
    )
    control: ControlPlane = field(init=False)
    answers: Counter[int] = field(init=False, default_factory=Counter)
    _sources: Mapping[str, HttpSource] = field(init=False, default_factory=dict)
    _owners: Mapping[str, PipelineOwner] = field(init=False, default_factory=dict)
    _installed: Installed | None = field(init=False, default=None)
    _looked_at: float = field(init=False, default=float("-inf"))

    def __post_init__(self) -> None:
        serve = self.settings.serve
        self.bodies = BodyBytes(serve.max_waiting_bytes)
        self.tokens = Tokens(self.settings.home)
        self.sessions = Sessions(self.tokens)
        if serve.oidc is not None:
            from etl_assets.serve.oidc import OidcTokens

            self.oidc = OidcTokens(serve.oidc)
        self.control = ControlPlane(self.settings)
        self.rates = Rates(serve.events_per_second)
        self.keys = Keys(self.journal, serve.max_keys)
        self.commits = GroupCommit(
            self.journal,
            seconds=serve.group_commit_seconds,
            max_bytes=serve.max_waiting_bytes,
            clock=self.clock,
        )
        self.watch = CommitWatch(OutcomeReader(self.settings.placement), max_waiting=serve.max_commit_waits)

    @classmethod
    def of(cls, request: HTTPConnection) -> Service:
        """Return the service of a request's app."""
        return request.app.state.service

    @property
    def limits(self) -> BodyLimits:
        """The limits of bodies."""
        serve = self.settings.serve
        return BodyLimits(
            max_bytes=serve.max_body_bytes,
            max_events=serve.max_events_per_request,
            seconds=serve.body_timeout_seconds,
        )

    def http_sources(self) -> Mapping[str, HttpSource]:
        """Return the sources of the pipelines that take records over HTTP, by pipeline."""
        self.installed()
        return self._sources

    def installed(self) -> Installed:
        """Return the pipelines, as they were within the last second."""
        if self._installed is None or time.monotonic() - self._looked_at > _PIPELINES_SECONDS:
            found = self.settings.installed()
            if found is not self._installed:
                self._take(found)
            self._looked_at = time.monotonic()
            return found
        return self._installed

    def look_again(self) -> None:
        """Let the next look at the pipelines see what has just changed."""
        self._looked_at = float("-inf")

    def owner_of(self, name: str) -> PipelineOwner | None:
        """Return whose pipeline it is; None if there is none of that name."""
        self.installed()
        return self._owners.get(name)

    def names_of(self, tenant: str) -> list[str]:
        """Return the names of the pipelines of a tenant."""
        self.installed()
        return sorted(name for name, owner in self._owners.items() if owner.tenant == tenant)

    def _take(self, found: Installed) -> None:
        """Know the pipelines that there are. Of several declarations of one name the usable one counts."""
        usable = [each for each in found.files if each.spec is not None]
        specs = [each.spec for each in usable if each.spec is not None]
        self._sources = {each.name: each.source for each in specs if isinstance(each.source, HttpSource)}
        built_in = PipelineOwner(tenant=DEFAULT_TENANT, origin=DeclarationOrigin.BUILT_IN)
        self._owners = {
            **{each.name: PipelineOwner(tenant=each.tenant, origin=each.origin) for each in found.files},
            **{each.name: built_in for each in found.catalog.pipelines if each.names},
            **{each.name: PipelineOwner(tenant=each.tenant, origin=each.origin) for each in usable},
        }
        self._installed = found

    async def token_of(self, request: HTTPConnection) -> Token:
        """Return the token of a request: one of the server's own, or of the issuer.

        Raises:
            ProblemDetails: it has none that is valid, or 503 if the issuer does not answer.
        """
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        secret, oidc = given.strip(), self.oidc
        if scheme.lower() == "bearer" and oidc is not None and oidc.is_one(secret):
            return await self.issuer_calls.call(lambda: oidc.of(secret, self.clock()))
        token = self.tokens.of(secret, self.clock()) if scheme.lower() == "bearer" else None
        if token is None:
            raise ProblemDetails(
                401,
                "no-valid-token",
                "send `Authorization: Bearer` with a valid token (`etl-assets tokens add`)",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return token

    async def prepare(self) -> None:
        """Learn the keys of the journals."""
        for pipeline in self.http_sources():
            await asyncio.to_thread(self.keys.remember, pipeline)
