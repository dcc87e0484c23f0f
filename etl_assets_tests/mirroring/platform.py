"""A mirrored table over real or in-memory roots, and commits as Spark would make them, for tests without
Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import TypeVar

from etl_assets.mirroring.protocol.bootstrap import bootstrap
from etl_assets.mirroring.protocol.chain import GENESIS, extend_all
from etl_assets.mirroring.protocol.checkpoints import Checkpoint
from etl_assets.mirroring.protocol.couriers import Couriers, Errands
from etl_assets.mirroring.protocol.first_copy import CLOSES, Conversion
from etl_assets.mirroring.protocol.lead import Lead
from etl_assets.mirroring.protocol.leadership import Leadership
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.mirroring.protocol.membership import Membership
from etl_assets.mirroring.protocol.mirror import Mirror
from etl_assets.mirroring.protocol.named_files import NamedFile
from etl_assets.mirroring.protocol.reading import Reading
from etl_assets.mirroring.protocol.table import MirroredTable
from etl_assets.mirroring.stores.store import Store

T = TypeVar("T")


def close(version: int, checkpoint: bytes | None, entries: Sequence[bytes]) -> bytes:
    """A closing entry that gives no properties."""
    return json.dumps({"commitInfo": {"userMetadata": json.dumps({CLOSES: version})}}).encode()


def make(base: Checkpoint | None, entries: Sequence[bytes]) -> Checkpoint:
    """A checkpoint in which nothing is."""
    version, chain = (-1, GENESIS) if base is None else (base.version, base.chain)
    return Checkpoint(
        version=version + len(entries), chain=extend_all(chain, entries), content=b"checkpoint", hint={}
    )


CONVERSION = Conversion(close=close, make=make)


class OneByOne:
    """Couriers that ask every domain in turn, so that a test knows who was asked."""

    def gather(self, errands: Errands[T], enough: Callable[[Mapping[str, T]], bool]) -> dict[str, T]:
        answers = {domain: errand() for domain, errand in errands.items()}
        enough(answers)
        return answers

    def gather_from_all(self, errands: Errands[T]) -> dict[str, T]:
        return self.gather(errands, lambda _: False)


class Impatient(OneByOne):
    """Couriers that ask in turn, slow domains last, and nobody once there are answers enough."""

    def __init__(self, *, slow: Collection[str] = ()) -> None:
        self._slow = slow

    def gather(self, errands: Errands[T], enough: Callable[[Mapping[str, T]], bool]) -> dict[str, T]:
        answers: dict[str, T] = {}
        for domain in sorted(errands, key=self._slow.__contains__):
            if not enough(answers):
                answers[domain] = errands[domain]()
        return answers


class Platform:
    """Domains by name, each with a store and a role."""

    def __init__(
        self,
        stores: Mapping[str, Store],
        roles: Mapping[str, Role] | None = None,
        couriers: Couriers | None = None,
        live_files: Callable[[bytes], Sequence[NamedFile]] = lambda content: (),
    ) -> None:
        self.stores = dict(stores)
        self.roles = dict.fromkeys(stores, Role.VOTER) | dict(roles or {})
        self.couriers = OneByOne() if couriers is None else couriers
        self.live_files = live_files
        self._ids = count(1)

    def bootstrap(self) -> None:
        bootstrap(self.table(next(iter(self.stores))), self.roles, self.new_id, CONVERSION)

    def table(self, home: str) -> MirroredTable:
        return MirroredTable(
            name="events",
            home=home,
            roots={domain: domain for domain in self.stores},
            open_store=self.stores.__getitem__,
            live_files=self.live_files,
            couriers=self.couriers,
        )

    def process(self, home: str) -> Process:
        return Process(self, home)

    def new_id(self) -> str:
        return f"i{next(self._ids)}"


class Process:
    """A process in a domain."""

    def __init__(self, platform: Platform, home: str) -> None:
        self.mirror = Mirror(platform.table(home))
        self.leadership = Leadership(self.mirror)
        self.reading = Reading(self.mirror.table)
        self.membership = Membership(self.mirror, new_incarnation=platform.new_id)
        self._platform = platform

    def lead(self) -> Lead:
        return self.leadership.lead()

    def spark_commit(self, lead: Lead, rows: bytes = b"rows", *, version: int | None = None) -> bytes:
        """Write a data file and a log entry to the home log, without pushing it."""
        home, name = self.mirror.home, f"part-{self._platform.new_id()}.parquet"
        entry = b"\n".join(
            json.dumps(action).encode()
            for action in (
                {"commitInfo": {"userMetadata": json.dumps({"epoch": str(lead.epoch)})}},
                {"add": {"path": name, "size": len(rows), "partitionValues": {}}},
            )
        )
        home.store.put(f"{home.folder(lead.folder)}/{name}", [rows])
        number = lead.version + 1 if version is None else version
        assert home.store.create(home.entry_key(lead.folder, number), entry)
        return entry

    def commit(self, lead: Lead | None = None) -> Lead:
        lead = self.lead() if lead is None else lead
        self.mirror.acknowledge(lead, self.spark_commit(lead))
        return self.leadership.current()
