"""A mirrored table as one process sees it: its name, the process's home domain, and its replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.protocol.couriers import Couriers
from etl_assets.mirroring.protocol.locator import Locator
from etl_assets.mirroring.protocol.named_files import NamedFile
from etl_assets.mirroring.protocol.record import Record
from etl_assets.mirroring.protocol.register import Held
from etl_assets.mirroring.protocol.replica import ReplicaStore
from etl_assets.mirroring.stores.store import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of one domain: its record, or the problem if it has no record that counts."""

    record: Record | None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredTable:
    """A table and how to reach its replicas.

    Attributes:
        name: The table.
        home: The domain this process works in.
        roots: Root of each configured domain. A domain that only the locator names has its root there.
        open_store: Opens a root.
        live_files: Returns the data files that a checkpoint's content names.
        couriers: Sends requests to several domains concurrently.
    """

    name: str
    home: str
    roots: Mapping[str, str]
    open_store: Callable[[str], Store]
    live_files: Callable[[bytes], Sequence[NamedFile]]
    couriers: Couriers
    _replicas: dict[tuple[str, str], ReplicaStore] = field(default_factory=dict)

    def replica(self, domain: str, locator: Locator | None = None) -> ReplicaStore:
        """Return the replica in a domain, at the root in the locator, else at the configured one."""
        named = None if locator is None else locator.replica(domain)
        uri = self.roots[domain] if named is None else named.uri
        if (domain, uri) not in self._replicas:
            store = self.open_store(uri)
            self._replicas[domain, uri] = ReplicaStore(store, table=self.name, domain=domain)
        return self._replicas[domain, uri]

    def read(self, domain: str, locator: Locator | None = None) -> Answer:
        """Read a domain's record.

        Returns:
            The record; or why it does not count: no answer, no register, an unreadable one, or another
            incarnation.
        """
        try:
            held = self.replica(domain, locator).register.read()
        except (Unanswered, ReplicaCorrupt) as error:
            return Answer(None, error.message)
        if (problem := self.disqualified(held, domain, locator)) is not None:
            return Answer(None, problem)
        return Answer(None if held is None else held.record)

    def disqualified(self, held: Held | None, domain: str, locator: Locator | None) -> str | None:
        """Return why a register must not be counted, or None if it may be.

        A register that is missing, or has another incarnation than the locator names, has lost its promises.
        """
        if held is None:
            return "has no register: its root was emptied, or it never belonged to the table"
        agreed = None if locator is None else locator.replica(domain)
        if agreed is not None and agreed.incarnation != held.record.incarnation:
            return "has the register of another incarnation: its root was replaced"
        return None
