"""Lines of text to validated events in Arrow, apart from rejected lines.

Every line is validated by `contracts.envelope.judge`.

Measured on 1,000,000 lines of 250 bytes: 8 CPU-s here, and 35 CPU-s with Spark's own
`to_json(try_parse_json(line))` and type checks. Spark also accepts `{"a":1} garbage` as JSON, and does not
report numbers that it changes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.envelope import CutLine, Limits, ValidatedLine, judge, too_large

if TYPE_CHECKING:
    import pyarrow as pa

EVENTS_SCHEMA = """
    file_index INT, block_start BIGINT, block_line BIGINT, partition_date DATE,
    event_id STRING, tenant_id STRING, aggregate_id STRING, event_type STRING, schema_version INT,
    occurred_at TIMESTAMP, payload STRING, fingerprint STRING, trace_id STRING, span_id STRING
"""
_EPOCH_DAY = dt.date(1970, 1, 1)
_MICROS_PER_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLines:
    """Some consecutive lines of a block, validated. A line of white space is neither an event nor rejected.

    Attributes:
        file_index: The file, by its place in source order.
        block_start: The first byte of the block in the file.
        day: The day on which the lines arrived.
        events: The lines that are events.
        event_lines: Their numbers in the block, from 0.
        rejected: The lines that are not events, with reasons.
        rejected_lines: Their numbers in the block.
    """

    file_index: int
    block_start: int
    day: dt.date
    events: list[ValidatedLine] = field(default_factory=list)
    event_lines: list[int] = field(default_factory=list)
    rejected: list[ValidatedLine] = field(default_factory=list)
    rejected_lines: list[int] = field(default_factory=list)


def judge_lines(
    lines: Iterable[bytes | CutLine],
    *,
    first: int,
    file_index: int,
    block_start: int,
    day: dt.date,
    limits: Limits,
) -> JudgedLines:
    """Validate lines of a block, the first of which has the number `first` in it."""
    found = JudgedLines(file_index=file_index, block_start=block_start, day=day)
    latest = (_day_number(day) + 1) * _MICROS_PER_DAY + limits.skew_micros
    for number, line in enumerate(lines, start=first):
        if isinstance(line, CutLine):
            judged = too_large(line, limits=limits)
        elif not line.strip():
            continue
        else:
            judged = judge(line.removesuffix(b"\r"), latest_micros=latest, limits=limits)
        if judged.reason is None:
            found.events.append(judged)
            found.event_lines.append(number)
        else:
            found.rejected.append(judged)
            found.rejected_lines.append(number)
    return found


def events_to_arrow(judged: Sequence[JudgedLines]) -> pa.Table:
    """Return the events among validated lines, in order, as `EVENTS_SCHEMA`."""
    import pyarrow as pa

    columns = _columns([row for lines in judged for row in lines.events])
    types = {
        **dict.fromkeys(("event_id", "tenant_id", "aggregate_id", "event_type"), pa.string()),
        "schema_version": pa.int32(),
        "occurred_at_micros": pa.timestamp("us", tz="UTC"),
        **dict.fromkeys(("payload", "fingerprint", "trace_id", "span_id"), pa.string()),
    }
    return pa.table(
        {
            **_places(judged, [lines.event_lines for lines in judged]),
            **{name.removesuffix("_micros"): pa.array(columns[name], kind) for name, kind in types.items()},
        }
    )


def rejected_to_arrow(judged: Sequence[JudgedLines]) -> pa.Table:
    """Return the rejected lines, in order.

    The columns are their places, and `event_id, reason, error, record, record_encoding` as text.
    """
    import pyarrow as pa

    columns = _columns([row for lines in judged for row in lines.rejected])
    names = ("event_id", "reason", "error", "record", "record_encoding")
    return pa.table(
        {
            **_places(judged, [lines.rejected_lines for lines in judged]),
            **{name: pa.array(columns[name], pa.string()) for name in names},
        }
    )


def _columns(rows: Sequence[ValidatedLine]) -> dict[str, Sequence[Any]]:
    columns = zip(*rows, strict=True) if rows else [()] * len(ValidatedLine._fields)
    return dict(zip(ValidatedLine._fields, columns, strict=True))


def _places(judged: Sequence[JudgedLines], numbers: Sequence[Sequence[int]]) -> dict[str, pa.Array]:
    import numpy as np
    import pyarrow as pa

    lengths = [len(some) for some in numbers]

    def repeated(values: Iterable[int]) -> pa.Array:
        return pa.array(np.repeat(np.fromiter(values, dtype=np.int64), lengths))

    return {
        "file_index": repeated(lines.file_index for lines in judged).cast(pa.int32()),
        "block_start": repeated(lines.block_start for lines in judged),
        "block_line": pa.array([number for some in numbers for number in some], pa.int64()),
        "partition_date": repeated(_day_number(lines.day) for lines in judged)
        .cast(pa.int32())
        .cast(pa.date32()),
    }


def _day_number(day: dt.date) -> int:
    return (day - _EPOCH_DAY).days
