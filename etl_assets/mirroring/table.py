"""A mirrored table as one process sees it: its name, the domain the process works in, and the replicas it can reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.couriers import Couriers
from etl_assets.mirroring.locator import Locator
from etl_assets.mirroring.named_files import NamedFile
from etl_assets.mirroring.record import Record
from etl_assets.mirroring.register import Held
from etl_assets.mirroring.replica import ReplicaStore
from etl_assets.mirroring.stores import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back from one domain: its record, or why there is none that counts."""

    record: Record | None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredTable:
    """A table and how to reach its replicas.

    Attributes:
        name: The table.
        home: The domain this process works in.
        roots: Root of each configured domain. Where a replica is that the locator names and settings do not, the
            locator itself says.
        open_store: Opens a root.
        live_files: The data files that a checkpoint's content names.
        couriers: Asks several domains at once.
    """

    name: str
    home: str
    roots: Mapping[str, str]
    open_store: Callable[[str], Store]
    live_files: Callable[[bytes], Sequence[NamedFile]]
    couriers: Couriers
    _replicas: dict[tuple[str, str], ReplicaStore] = field(default_factory=dict)

    def replica(self, domain: str, locator: Locator | None = None) -> ReplicaStore:
        """The replica in a domain, at the root the locator says, else at the configured one."""
        named = None if locator is None else locator.replica(domain)
        uri = self.roots[domain] if named is None else named.uri
        if (domain, uri) not in self._replicas:
            store = self.open_store(uri)
            self._replicas[domain, uri] = ReplicaStore(store, table=self.name, domain=domain)
        return self._replicas[domain, uri]

    def read(self, domain: str, locator: Locator | None = None) -> Answer:
        """A domain's record, or why it does not count: no answer, none there, another memory than the agreed one."""
        try:
            held = self.replica(domain, locator).register.read()
        except (Unanswered, ReplicaCorrupt) as error:
            return Answer(None, error.message)
        if (problem := self.disqualified(held, domain, locator)) is not None:
            return Answer(None, problem)
        return Answer(None if held is None else held.record)

    def disqualified(self, held: Held | None, domain: str, locator: Locator | None) -> str | None:
        """Why a register must not be counted, None if it may be: a blank or foreign memory forgot its promises."""
        if held is None:
            return "has no register: its root was emptied, or it never belonged to the table"
        agreed = None if locator is None else locator.replica(domain)
        if agreed is not None and agreed.incarnation != held.record.incarnation:
            return "has the register of another incarnation: its root was replaced"
        return None
