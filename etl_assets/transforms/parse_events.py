"""Lines of text to judged events: `contracts.envelope.judge` for every line, in Python workers over Arrow batches.

Measured on 1,000,000 lines of 250 bytes: 8 CPU-s here, 35 CPU-s with Spark's own `to_json(try_parse_json(line))` and
type checks, which besides takes `{"a":1} garbage` for JSON and does not see numbers it has changed.
"""

from __future__ import annotations

import codecs
import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from etl_assets.contracts.envelope import Judged, Limits, judge

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

PARSED_SCHEMA = """
    file_index INT, block_start BIGINT, block_line BIGINT, partition_date DATE,
    event_id STRING, tenant_id STRING, aggregate_id STRING, event_type STRING, schema_version INT,
    occurred_at TIMESTAMP, payload STRING, fingerprint STRING, trace_id STRING, span_id STRING,
    reason STRING, error STRING, record STRING, record_encoding STRING
"""
BLANK = "blank"
_BLANK_LINE = Judged(reason=BLANK)
_EPOCH_DAY = dt.date(1970, 1, 1)
_MICROS_PER_DAY = 86_400_000_000


def parse_events(lines: DataFrame, files: Mapping[str, tuple[int, dt.date]], limits: Limits) -> DataFrame:
    """Judge every line.

    Args:
        lines: `value BINARY, file_path STRING, block_start BIGINT`: one row a line, in file order within a block (a
            block is the part of a file that one task reads).
        files: For each file, by its path without scheme, its index in source order and its day.
        limits: What the platform takes.

    Returns:
        `PARSED_SCHEMA`, in the same order and partitions. `block_line` counts the lines of a block from 0. `reason` is
        null for an event, `BLANK` for a line of white space, which is no record, and else says why the line is rejected.
    """
    return lines.mapInArrow(_judge_batches(dict(files), limits), PARSED_SCHEMA)


def _judge_batches(
    files: dict[str, tuple[int, dt.date]], limits: Limits
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def judge_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        block: tuple[str, int] | None = None
        line_of_block = index = latest = day_number = 0
        for batch in batches:
            rows: list[Judged] = []
            places: list[tuple[int, int, int, int]] = []
            for line, path, start in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if (path, start) != block:
                    block, line_of_block = (path, start), 0
                    index, day = files[unquote(urlsplit(path).path)]
                    if start == 0:
                        line = line.removeprefix(codecs.BOM_UTF8)
                    day_number = (day - _EPOCH_DAY).days
                    latest = (day_number + 1) * _MICROS_PER_DAY + limits.skew_micros
                places.append((index, start, line_of_block, day_number))
                line = line.removesuffix(b"\r")
                rows.append(judge(line, latest_micros=latest, limits=limits) if line.strip() else _BLANK_LINE)
                line_of_block += 1
            yield _to_arrow(places, rows)

    return judge_batches


def _to_arrow(places: list[tuple[int, int, int, int]], rows: list[Judged]) -> pa.RecordBatch:
    import pyarrow as pa

    string = pa.string()
    types: dict[str, Any] = {
        "file_index": pa.int32(),
        "block_start": pa.int64(),
        "block_line": pa.int64(),
        "partition_date": pa.date32(),
        **dict.fromkeys(Judged._fields, string),
        "schema_version": pa.int32(),
        "occurred_at_micros": pa.timestamp("us", tz="UTC"),
    }
    columns = [*zip(*places, strict=True), *zip(*rows, strict=True)] if rows else [()] * len(types)
    names = ["occurred_at" if name == "occurred_at_micros" else name for name in types]
    arrays = [pa.array(column, type=kind) for column, kind in zip(columns, types.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=names)
