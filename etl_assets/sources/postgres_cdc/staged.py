"""Staged files of a log: Arrow files with the changes of one schema version of a table.

Belongs here: writing and reading these files, and what a change is to the validation. Does not belong here:
which changes are read (`source.py`), and what their values are (`changed_rows.py`).
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.contracts.arrow_calls import call
from etl_assets.contracts.envelope import BadRecord, Record
from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.delta.write.completed_changes import FORMER_KEY
from etl_assets.errors import SourceRefused
from etl_assets.pipelines.postgres_cdc_spec import (
    CHANGE_FIELD,
    COMMITTED_AT_FIELD,
    LSN_FIELD,
    OPERATION_FIELD,
    SEQUENCE_FIELD,
    UNAVAILABLE_FIELD,
)
from etl_assets.sources.canonical_rows import canonical_rows
from etl_assets.sources.lines import Block
from etl_assets.sources.postgres_cdc.changed_rows import ChangeEffect
from etl_assets.sources.postgres_cdc.column_changes import Columns, columns_as_json, columns_of_json
from etl_assets.sources.postgres_cdc.lsn import lsn_text

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.sources.postgres_cdc.changed_rows import ChangedRows

SUFFIX = ".arrows"
REFUSED = "postgres.refused"
"""Why a change is not taken; null: it is."""
_REASON = "postgres.reason"
_COLUMNS = b"postgres.columns"
"""The columns of the table that a file's changes are of, in the metadata of its schema."""
_ADDED = (
    CHANGE_FIELD,
    OPERATION_FIELD,
    LSN_FIELD,
    SEQUENCE_FIELD,
    COMMITTED_AT_FIELD,
    REFUSED,
    _REASON,
)


class ChangesFile:
    """Writes the changes of one schema version, some at a time.

    Args:
        path: The file, which is new.
        quarantined: Why rows of these columns are not taken; None: they are.
        has_unavailable: Whether some of the changes lack values. Records of the others have no such field.
    """

    def __init__(self, path: Path, *, quarantined: str | None = None, has_unavailable: bool = False) -> None:
        self.path, self.quarantined, self.has_unavailable = path, quarantined, has_unavailable
        self.rows = self.bytes = 0
        self._stream: pa.ipc.RecordBatchStreamWriter | None = None

    def write(self, changed: ChangedRows) -> None:
        """Append changes."""
        import pyarrow as pa

        texts = self._refused(changed)
        places = [changed.commit_lsns, changed.sequences, changed.committed_at]
        added = [changed.changes, changed.operations, *places, *texts]
        names = list(_ADDED)
        if self.has_unavailable:
            added.insert(0, _unavailable(changed))
            names.insert(0, UNAVAILABLE_FIELD)
        fields = [*changed.rows.schema, *map(pa.field, names, (each.type for each in added))]
        columns = json.dumps(columns_as_json(changed.relation.columns)).encode()
        schema = pa.schema(fields, metadata={_COLUMNS: columns})
        batch = pa.record_batch([*changed.rows.columns, *added], schema=schema)
        if self._stream is None:
            self._stream = pa.ipc.new_stream(str(self.path), batch.schema)
        self._stream.write_batch(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    def _refused(self, changed: ChangedRows) -> tuple[pa.StringArray, pa.StringArray]:
        """Return for each change why it is not taken, and the reason of its dead letter."""
        import pyarrow as pa

        if self.quarantined is None and not changed.refused:
            nothing = pa.nulls(len(changed.changes), pa.string())
            return nothing, nothing
        errors: list[str | None] = []
        reasons: list[str | None] = []
        for number, change in enumerate(changed.changes.to_pylist()):
            # A delete has the keys only, and a truncate no values.
            quarantined = self.quarantined if change == ChangeEffect.UPSERT else None
            error = quarantined or changed.refused.get(number)
            reason = DeadLetterReason.SCHEMA_CHANGED if quarantined else DeadLetterReason.MALFORMED_VALUE
            errors.append(error)
            reasons.append(None if error is None else reason.value)
        return pa.array(errors, pa.string()), pa.array(reasons, pa.string())

    def close(self) -> None:
        """Complete the file. Without changes there is none."""
        if self._stream is not None:
            self._stream.close()


def columns_of(schema: pa.Schema) -> Columns | None:
    """Return the columns of the table that a file's changes are of; None: it is of an earlier release."""
    found = (schema.metadata or {}).get(_COLUMNS)
    return None if found is None else columns_of_json(json.loads(found))


def begins_with_truncate(path: str) -> bool:
    """Return whether a file's first change empties the table, as at the beginning of another copy."""
    import pyarrow as pa

    with pa.OSFile(path) as file, pa.ipc.open_stream(file) as stream:
        first = next((batch for batch in stream if batch.num_rows), None)
    return first is not None and first.column(CHANGE_FIELD)[0].as_py() == ChangeEffect.TRUNCATE.value


def refused_upserts(batch: pa.RecordBatch, why: str) -> pa.RecordBatch:
    """Return changes of a file of which no upsert is taken."""
    import pyarrow as pa

    is_upsert = call("equal", batch.column(CHANGE_FIELD), ChangeEffect.UPSERT.value)
    for name, text in ((REFUSED, why), (_REASON, DeadLetterReason.SCHEMA_CHANGED.value)):
        at = batch.schema.get_field_index(name)
        found = call("if_else", is_upsert, pa.scalar(text, pa.string()), batch.column(at))
        batch = batch.set_column(at, batch.schema.field(at), found)
    return batch


def expect_whole(changed: ChangedRows) -> None:
    """Expect that every upsert has all values.

    Raises:
        SourceRefused: one lacks some.
    """
    if not changed.unchanged:
        return
    number, columns = min(changed.unchanged.items())
    table = f"{changed.relation.schema}.{changed.relation.name}"
    raise SourceRefused(
        f"an update of {table} at {lsn_text(changed.commit_lsns[number].as_py())} does not have the values of"
        f" {', '.join(columns)}, which the pipeline's transforms take: they are long, it did not change them,"
        " and the replica identity was not FULL when it was logged",
        fix=f"ALTER TABLE {table} REPLICA IDENTITY FULL; then copy the table again: `on_lost: copy`, and"
        " SELECT pg_drop_replication_slot of the pipeline's slot",
        source=table,
    )


def _unavailable(changed: ChangedRows) -> pa.Array:
    """Return what each change lacks, as `LackingColumns.lacks` has it."""
    import pyarrow as pa

    keys = [each.name for each in changed.relation.columns if each.name in changed.keys]
    old = {}
    if changed.moved:
        before = pa.array([number - 1 for number in sorted(changed.moved)])
        lines = canonical_rows({name: changed.rows.column(name).take(before) for name in keys})
        old = dict(zip(sorted(changed.moved), lines.to_pylist(), strict=True))
    found: list[str | None] = [None] * len(changed.changes)
    for number, names in changed.unchanged.items():
        lacked = dict.fromkeys(names, "")
        if number in old:
            lacked[FORMER_KEY] = old[number]
        found[number] = json.dumps(lacked, separators=(",", ":"), sort_keys=True)
    return pa.array(found, pa.string())


@dataclass(frozen=True, slots=True)
class StagedChanges:
    """How staged files are read. Positions are changes of a file, counted from 0."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of the names of its files."""
        return (SUFFIX,)

    def blocks(self, path: str, size: int, most_bytes: int) -> Iterator[Block]:
        """Return the whole file."""
        yield Block(path=path, start=0, end=size)

    def read(self, block: Block, held_bytes: int) -> Generator[tuple[int, list[Record]]]:
        """Yield the changes of a file as lines of canonical JSON, by columns."""
        import pyarrow as pa

        first = 0
        with pa.OSFile(block.path) as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                yield first, records_of(batch, held_bytes)
                first += batch.num_rows

    def positions(self, first: int, records: Sequence[Record]) -> Iterable[int]:
        """Return the place of each change."""
        return range(first, first + len(records))


def records_of(batch: pa.RecordBatch, held_bytes: int) -> list[Record]:
    """Return changes of a file as lines of canonical JSON, or why they are not taken."""
    import pyarrow as pa

    names = batch.schema.names[:-2]  # the last two say why a row is refused
    lines = canonical_rows({name: batch.column(name) for name in names})
    records: list[Record] = lines.cast(pa.binary()).to_pylist()
    refused = batch.column(REFUSED)
    if refused.null_count == len(records):
        return records
    for number, (error, reason) in enumerate(
        zip(refused.to_pylist(), batch.column(_REASON).to_pylist(), strict=True)
    ):
        if error is not None:
            line = lines[number].as_py().encode()
            records[number] = BadRecord(start=line[:held_bytes], reason=DeadLetterReason(reason), error=error)
    return records
