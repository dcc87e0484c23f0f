"""The sink: an index that follows one table.

Belongs here: the order in which a delivery reaches the engine, and its figures.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.errors import SinkRefused
from etl_assets.sinks.search.bulk import BulkWriter, Outcomes
from etl_assets.sinks.search.client import Patience, SearchClient, SearchServer
from etl_assets.sinks.search.documents import document_lines, json_value, pieces, tombstone_lines
from etl_assets.sinks.search.index import SearchIndex
from etl_assets.sinks.search.mapping import mapping_of
from etl_assets.sinks.sink import Delivered, Delivery, Guarantee, Rejection, SinkPosition

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.contracts.columns import TableContract

_TOMBSTONE_BITS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTarget:
    """An index that follows a table.

    Attributes:
        server: The engine.
        index: The name that readers search: an alias.
        write: The names that may be written, as globs.
        mappings: Fields that replace the default of their column, as the engine spells them.
        settings: Settings of the index when it is created, as the engine spells them.
        patience: How long a busy engine is waited for.
    """

    server: SearchServer
    index: str
    write: tuple[str, ...]
    mappings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    patience: Patience = field(default_factory=Patience)


class SearchSink:
    """Documents by key. Each has the version of its delivery, and the engine keeps the higher version.

    A deleted row stays as a tombstone: a small document with a version, which searches through the alias do
    not find, until the next whole delivery. So an older writer never brings a row back, however late it wakes
    up; the time for which the engine itself remembers deletes (`index.gc_deletes`) has no part in it.

    Two limits. Reading a document by its id does not apply the alias's filter: it returns tombstones
    (`_etl.deleted`). And who deletes documents by other means deletes their versions.
    """

    def __init__(
        self,
        target: SearchTarget,
        *,
        sleep: Callable[[float], None] = time.sleep,
        dice: random.Random | None = None,
    ) -> None:
        self._target = target
        self._client = SearchClient(
            target.server, sink=self.target, patience=target.patience, sleep=sleep, dice=dice
        )
        self._contract: TableContract | None = None

    @property
    def guarantee(self) -> Guarantee:
        """Each key as its newest delivery has it."""
        return Guarantee.BY_KEY

    @property
    def keeps_position(self) -> bool:
        """An engine has no commit over rows and a position."""
        return False

    @property
    def applies_deletes(self) -> bool:
        """Deleted rows become tombstones."""
        return True

    @property
    def target(self) -> str:
        """The target for people."""
        return f"{self._target.server.urls[0].rstrip('/')}/{self._target.index}"

    def prepare(self, contract: TableContract) -> None:
        """Check the index, and add the columns that it lacks. The first delivery creates it."""
        self._check_allowed()
        self._contract = contract
        index = self._index(contract)
        for name in index.find():
            index.adapt(name)

    def position(self) -> SinkPosition | None:
        """None: the commit of the delivery's record keeps it."""
        return None

    def deliver(self, delivery: Delivery) -> Delivered:
        """Write a delivery's rows and tombstones; with a whole delivery, remove everything else."""
        self._check_allowed()
        contract = self._contract
        if contract is None:
            raise ValueError("call prepare() first")
        index = self._index(contract)
        held = index.hold(delivery.after.table_id)
        version = document_version(delivery.after)
        if not held.readable and not delivery.whole and delivery.before is not None:
            raise SinkRefused(
                f"{self.target} no longer has the table: the index was removed, or holds another table",
                fix="materialize the sink's asset by hand: that delivers the whole table",
                sink=self.target,
            )
        if version < held.floor:
            return Delivered(unchanged=_number_of_rows(delivery))
        writer = BulkWriter(self._client, index, held)
        written, unchanged, rejected = self._write_rows(writer, contract, delivery, version)
        deleted = 0
        for piece in pieces(delivery.deleted()):
            delivery.expect_current()
            outcomes = writer.write(tombstone_lines(piece, contract.merge_key, version=version))
            self._refuse_tombstones(outcomes)
            deleted, unchanged = deleted + outcomes.updated, unchanged + outcomes.created + outcomes.newer
        index.refresh(held)
        delivery.expect_current()
        if delivery.whole or not held.readable:
            if not held.readable or held.floor < version:
                held = index.activate(held, version)
            deleted += index.sweep(held)
        return Delivered(written=written, unchanged=unchanged, deleted=deleted, rejected=rejected)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _write_rows(
        self, writer: BulkWriter, contract: TableContract, delivery: Delivery, version: int
    ) -> tuple[int, int, int]:
        written = unchanged = rejected = 0
        for piece in pieces(delivery.rows()):
            delivery.expect_current()
            outcomes = writer.write(document_lines(piece, contract.merge_key, version=version))
            if outcomes.refused:
                delivery.reject(
                    [
                        _rejection(piece, contract, position, error)
                        for position, error in sorted(outcomes.refused.items())
                    ]
                )
            written += outcomes.created + outcomes.updated
            unchanged += outcomes.newer
            rejected += len(outcomes.refused)
        return written, unchanged, rejected

    def _refuse_tombstones(self, outcomes: Outcomes) -> None:
        for error in outcomes.refused.values():
            self._client.refused(f"a tombstone is not accepted: {error}", fix="see the mapping of the index")

    def _index(self, contract: TableContract) -> SearchIndex:
        mapping = mapping_of(contract, self._target.mappings, sink=self.target)
        return SearchIndex(self._client, self._target.index, mapping=mapping, settings=self._target.settings)

    def _check_allowed(self) -> None:
        if not any(fnmatchcase(self._target.index, each) for each in self._target.write):
            raise SinkRefused(
                f"the index {self._target.index} is not among those that may be written",
                fix="add it to `write` of the connection in the platform file",
                sink=self.target,
            )


def document_version(position: SinkPosition) -> int:
    """Return the version of a delivery's documents: by the table's version, then by that of its tombstones.

    A delivery may bring only newer tombstones. Without them in the version, a late writer of the rows before
    would be equal, and would bring a deleted row back.
    """
    tombstones = min(position.tombstones + 1, 2**_TOMBSTONE_BITS - 1)
    return (position.version + 1 << _TOMBSTONE_BITS) + tombstones


def _rejection(piece: pa.RecordBatch, contract: TableContract, position: int, error: str | None) -> Rejection:
    row = piece.slice(position, 1).to_pylist()[0]
    return Rejection(
        keys=json_value({name: row[name] for name in contract.merge_key}).decode(),
        row=json_value(row).decode(),
        reason=DeadLetterReason.RECORD_TOO_LARGE if error is None else DeadLetterReason.REFUSED_BY_TARGET,
        error="the document is larger than the engine takes in one request" if error is None else error,
    )


def _number_of_rows(delivery: Delivery) -> int:
    return sum(batch.num_rows for source in _sources(delivery) for batch in source)


def _sources(delivery: Delivery) -> Iterator[Iterator[pa.RecordBatch]]:
    yield delivery.rows()
    yield delivery.deleted()
