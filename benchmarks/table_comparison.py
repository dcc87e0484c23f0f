"""Two folders of one table of the orders pipeline, compared value by value.

Belongs here: what is compared, and every deviation in words. Does not belong here: how the tables were made
(`same_tables.py`).

Compared are columns, the number of versions, and all rows in the order of their keys. `CLOCKS` are left out:
they say when something was done.

Offsets of normalized_orders are dealt in the order in which Spark reads the files of a commit: by size, which
differs by some bytes with the clock, between two runs of one commit as well. So each commit must have dealt
the same offsets, every column that holds one must lead to the same event, and the view must name the event
with the order's highest one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import pyarrow as pa

CLOCKS = ("ingested_at", "normalized_at", "committed_at", "updated_at", "recorded_at", "failed_at")
"""Columns that hold the platform's clock, or the latest of such values."""
KEYS: Mapping[str, tuple[str, ...]] = {
    "raw_events": ("event_id",),
    "customers": ("customer_id",),
    "normalized_orders": ("event_id",),
    "warehouse_rows": ("event_id",),
    "order_status_view": ("tenant_id", "order_id"),
    "dead_letters": ("dead_letter_id",),
    "audit_log": ("stage", "source", "source_position", "attempt"),
    "raw_events_exceptions": ("exception_id",),
    "normalized_orders_exceptions": ("exception_id",),
}
"""What rows are sorted by; a table that is not named here is sorted by all its columns."""
_ORDER = [("tenant_id", "ascending"), ("order_id", "ascending")]


def table_differences(table: str, before: Path, after: Path) -> Iterator[str]:
    """Every deviation between two folders of a table."""
    from deltalake import DeltaTable

    logs = DeltaTable(str(before)), DeltaTable(str(after))
    versions = [log.version() for log in logs]
    if versions[0] != versions[1]:
        yield f"{versions[0]} versions before, {versions[1]} after"
    frames = [
        _with_raw_offsets(table, log.to_pyarrow_table(), path)
        for log, path in zip(logs, (before, after), strict=True)
    ]
    if frames[0].schema != frames[1].schema:
        yield f"columns: {frames[0].schema} before, {frames[1].schema} after"
        return
    if frames[0].num_rows != frames[1].num_rows:
        yield f"{frames[0].num_rows:,} rows before, {frames[1].num_rows:,} after"
        return
    columns = [name for name in frames[0].column_names if name not in CLOCKS]
    keys = [(name, "ascending") for name in KEYS.get(table, columns)]
    one, other = (frame.select(columns).sort_by(keys) for frame in frames)
    differing = [name for name in columns if not one.column(name).equals(other.column(name))]
    for name in differing:
        pairs = zip(one.column(name).to_pylist(), other.column(name).to_pylist(), strict=True)
        number, (its, theirs) = next((n, pair) for n, pair in enumerate(pairs) if pair[0] != pair[1])
        yield (
            f"{name}: {its!r:.200} before, {theirs!r:.200} after, in"
            f" {one.slice(number, 1).to_pylist()!r:.600}"
        )
    click.echo(
        f"  {table}: {one.num_rows:,} rows, {len(columns)} columns, {versions[0] + 1} versions,"
        f" {len(differing)} differ",
        err=True,
    )


def _with_raw_offsets(table: str, rows: pa.Table, path: Path) -> pa.Table:
    """The rows with raw_events' offset of the same event for each offset of normalized_orders.

    Raises:
        ClickException: An offset is not that of the row's event, or an order's last event is not the one with
            the highest offset.
    """
    if table not in ("normalized_orders", "warehouse_rows", "order_status_view", "audit_log"):
        return rows
    events = _events(path)
    if table == "normalized_orders":
        # The offset that a commit would have dealt in the order of raw_events.
        order = rows.select(["batch_id", "raw_offset"]).sort_by(
            [("batch_id", "ascending"), ("raw_offset", "ascending")]
        )
        dealt = rows.select(["batch_id", "offset"]).sort_by(
            [("batch_id", "ascending"), ("offset", "ascending")]
        )
        given = order.append_column("dealt", dealt.column("offset")).sort_by("raw_offset")
        return _replaced(rows.sort_by("raw_offset"), "offset", given.column("dealt"))
    if table == "warehouse_rows":
        found = _raw_offsets(events, rows.column("normalized_offset"))
        _expect(found, _raw_offsets_of_ids(events, rows.column("event_id")), f"{path}: normalized_offset")
        return _replaced(rows, "normalized_offset", found)
    if table == "order_status_view":
        last = events.group_by(["tenant_id", "order_id"]).aggregate([("offset", "max")]).sort_by(_ORDER)
        rows = rows.sort_by(_ORDER)
        _expect(rows.column("last_offset"), last.column("offset_max"), f"{path}: last_offset")
        found = _raw_offsets(events, rows.column("last_offset"))
        _expect(found, _raw_offsets_of_ids(events, rows.column("last_event_id")), f"{path}: last_event_id")
        return rows.drop_columns(["last_offset", "last_event_id"])
    return _audit_with_raw_offsets(events, rows, path)


def _audit_with_raw_offsets(events: pa.Table, rows: pa.Table, path: Path) -> pa.Table:
    """Lines of what normalize accepted and what was committed name such offsets; the latter in their
    position as well.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    named = pc.call_function(
        "is_in", [rows.column("outcome")], pc.SetLookupOptions(pa.array(["normalized", "committed"]))
    )
    committed = pc.call_function("equal", [rows.column("outcome"), pa.scalar("committed")])
    some = rows.filter(named)
    found = _raw_offsets(events, some.column("offset"))
    _expect(found, _raw_offsets_of_ids(events, some.column("event_id")), f"{path}: offset")
    of_committed = rows.filter(committed)
    position = _raw_offsets(events, of_committed.column("source_position").cast(pa.int64()))
    _expect(
        position, _raw_offsets_of_ids(events, of_committed.column("event_id")), f"{path}: source_position"
    )
    rows = _replaced(
        rows,
        "offset",
        pc.call_function(
            "replace_with_mask", [rows.column("offset").combine_chunks(), named.combine_chunks(), found]
        ),
    )
    text = pc.call_function(
        "replace_with_mask",
        [
            rows.column("source_position").combine_chunks(),
            committed.combine_chunks(),
            position.cast(pa.string()),
        ],
    )
    return _replaced(rows, "source_position", text)


def _events(path: Path) -> pa.Table:
    from deltalake import DeltaTable

    (folder,) = (path.parents[1] / "normalized_orders").glob("g*")
    columns = ["offset", "raw_offset", "event_id", "tenant_id", "order_id"]
    return DeltaTable(str(folder)).to_pyarrow_table(columns=columns).sort_by("offset")


def _raw_offsets(events: pa.Table, offsets: pa.ChunkedArray) -> pa.Array:
    """Offsets are dense: the offset is the number of the row."""
    return events.column("raw_offset").combine_chunks().take(offsets.combine_chunks())


def _raw_offsets_of_ids(events: pa.Table, ids: pa.ChunkedArray) -> pa.Array:
    import pyarrow.compute as pc

    numbers = pc.call_function(
        "index_in", [ids.combine_chunks()], pc.SetLookupOptions(events.column("event_id").combine_chunks())
    )
    return events.column("raw_offset").combine_chunks().take(numbers)


def _expect(found: pa.Array | pa.ChunkedArray, wanted: pa.Array | pa.ChunkedArray, what: str) -> None:
    if found.to_pylist() != wanted.to_pylist():
        raise click.ClickException(f"{what}: not those of normalized_orders")


def _replaced(rows: pa.Table, column: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.column_names.index(column), rows.schema.field(column), values)
