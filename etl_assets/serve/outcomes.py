"""What became of the events of journal files, by the committed tables of their pipeline.

The tables are the truth: an outcome is read from the source table and its table of rejects, by source
position, whichever process committed it and whenever. Rejects count once the rows of their batch are
committed.

Belongs here: reading outcomes. Does not belong here: waiting for them (`commit_watch.py`), and how they are
answered (`events.py`).
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.contracts.reasons import Outcome
from etl_assets.delta.read.rows import files_with
from etl_assets.errors import FeatureUnsupported
from etl_assets.ingest.pending_plan import settled_version
from etl_assets.mirroring.stores.circuit_breaker import ask
from etl_assets.serve.group_commit import Receipt
from etl_assets.sources.http.journal_file import HTTP
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.delta.table import Table
    from etl_assets.placement.domains import FailureDomain, Placement

T = TypeVar("T")

_LOOK_SECONDS = 30.0
_AFTER_COLON = ";"
"""The character after the colon of a position: a file's positions are from `<file>:` to here."""
_LINE = r":[0-9]+$"
_ACCEPTED = ("source_position", "record_id", "offset")
_EXCEPTED = ("source_position", "event_id", "original_offset", "outcome", "reason", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventOutcome:
    """What became of an event.

    Attributes:
        position: Its source position.
        outcome: Accepted, duplicate, conflict or rejected.
        id: Its id, if it names one.
        offset: Its offset in the source table; for a duplicate or a conflict that of the accepted event.
        reason: Why it was refused.
        error: What exactly is wrong, in words.
    """

    position: str
    outcome: str
    id: str | None = None
    offset: int | None = None
    reason: str | None = None
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as a JSON object, without what is unknown."""
        names = ("outcome", "offset", "position", "id", "reason", "error")
        found = ((name, getattr(self, name)) for name in names)
        return {name: value for name, value in found if value is not None}


Outcomes = tuple[EventOutcome, ...]
"""The outcomes of a request, in the order of its events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersions:
    """Versions of a source table and of its rejects, -1 for a table that is not there."""

    rows: int = -1
    rejects: int = -1


NOTHING_READ = TableVersions()


class OutcomeReader:
    """Reads outcomes of requests. Its methods block: they are called in a thread."""

    def __init__(self, placement: Callable[[], Placement]) -> None:
        self._placement = placement

    def versions(self, pipeline: str) -> TableVersions:
        """Return the acknowledged versions of a pipeline's tables.

        Raises:
            EtlAssetsError, OSError: they cannot be read.
        """
        placement = self._placement()
        domain = placement.reader()

        def look() -> TableVersions:
            rows, rejects = _tables(domain, pipeline)
            return TableVersions(rows=rows.version(), rejects=rejects.version())

        return _ask(placement, domain, look)

    def read(
        self, pipeline: str, receipts: Collection[Receipt], since: TableVersions
    ) -> Mapping[Receipt, Outcomes]:
        """Return the outcomes of those requests whose batch is committed.

        Args:
            pipeline: The pipeline.
            receipts: Where the records of the requests are.
            since: Versions from before the requests were stored: older rows are not looked at.

        Raises:
            EtlAssetsError, OSError: the tables cannot be read.
        """
        placement = self._placement()
        domain = placement.reader()
        return _ask(placement, domain, lambda: _read(domain, pipeline, receipts, since))


def _ask(placement: Placement, domain: FailureDomain, look: Callable[[], T]) -> T:
    """Look at tables within a time limit. A slow look does not open the breaker that the journal asks."""
    return ask(
        f"the tables in {domain.root}",
        look,
        max(_LOOK_SECONDS, domain.timeout_seconds),
        small=partial(_alive, placement, domain),
    )


def _alive(placement: Placement, domain: FailureDomain) -> object:
    return placement.memory.strange(domain.name, str(domain.root))


def _tables(domain: FailureDomain, pipeline: str) -> tuple[Table, Table]:
    stage = domain.catalog.stage(f"{pipeline}_source")
    assert stage.rejects is not None  # a source always may reject records
    return platform_table(stage.name, domain), platform_table(stage.rejects.name, domain)


def _read(
    domain: FailureDomain, pipeline: str, receipts: Collection[Receipt], since: TableVersions
) -> dict[Receipt, Outcomes]:
    rows, rejects = _tables(domain, pipeline)
    # 1. Rejects up to the newest ones that count: those of a batch without its rows do not.
    settled = settled_version(rejects, rows)
    by_day: defaultdict[dt.date, set[str]] = defaultdict(set)
    for each in receipts:
        by_day[dt.date.fromisoformat(each.file.partition("/")[0])].add(each.file)
    found: dict[str, EventOutcome] = {}
    for day, files in by_day.items():
        for row in _rows(rejects, _EXCEPTED, day, files, since.rejects, settled):
            outcome = _excepted(row)
            found[outcome.position] = outcome
        # 2. Accepted rows: what is a row is accepted, whatever an earlier reading of its file found.
        for row in _rows(rows, _ACCEPTED, day, files, since.rows):
            outcome = _accepted(row)
            found[outcome.position] = outcome
    # 3. A request is committed as a whole: each of its lines has an outcome.
    return {
        each: tuple(found[position] for position in each.positions())
        for each in receipts
        if all(position in found for position in each.positions())
    }


def _rows(
    table: Table,
    columns: Sequence[str],
    day: dt.date,
    files: Collection[str],
    after: int,
    up_to: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a day that are from some journal files and above a batch id.

    Only data files that have such batches are opened, and of them the row groups that have such positions.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    if (snapshot := table.snapshot()) is None:
        return
    if not snapshot.is_plain:
        raise FeatureUnsupported(
            f"the table {table.name} has features of Delta that this server cannot read",
            fix="take them out with Spark, or send the events with `ack=durable`",
            table=table.name,
        )
    paths = [str(table.path / file) for file in files_with(snapshot, {day: after})]
    if not paths:
        return
    position, batch = ds.field("source_position"), ds.field("batch_id")
    wanted = (
        (ds.field("source") == HTTP)
        & (position >= f"{min(files)}:")
        & (position < f"{max(files)}{_AFTER_COLON}")
        & (batch > after)
    )
    if up_to is not None:
        wanted &= batch <= up_to
    names = pa.array(sorted(files), pa.string())
    assert table.contract is not None  # tables of a pipeline have one
    schema = data_file_schema(table.contract)
    dataset = ds.dataset(
        paths,
        schema=schema,
        format="parquet",
        partitioning=ds.partitioning(
            pa.schema([schema.field(name) for name in table.contract.delta_partition]), flavor="hive"
        ),
        partition_base_dir=str(table.path),
    )
    for found in dataset.to_batches(columns=list(columns), filter=wanted):
        yield from _of_files(found, names).to_pylist()


def _of_files(rows: pa.RecordBatch, files: pa.Array) -> pa.RecordBatch:
    """Return the rows that are from some files: between two of them there are others."""
    import pyarrow.compute as pc

    of_file = pc.call_function(
        "replace_substring_regex",
        [rows.column("source_position")],
        pc.ReplaceSubstringOptions(pattern=_LINE, replacement=""),
    )
    return rows.filter(pc.call_function("is_in", [of_file], pc.SetLookupOptions(value_set=files)))


def _accepted(row: Mapping[str, Any]) -> EventOutcome:
    return EventOutcome(
        position=row["source_position"],
        outcome=Outcome.ACCEPTED.value,
        id=row["record_id"],
        offset=row["offset"],
    )


def _excepted(row: Mapping[str, Any]) -> EventOutcome:
    return EventOutcome(
        position=row["source_position"],
        outcome=row["outcome"],
        id=row["event_id"],
        offset=row["original_offset"],
        reason=row["reason"],
        error=row["error"],
    )
