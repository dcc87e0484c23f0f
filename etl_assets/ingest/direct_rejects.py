"""The rejects of a direct load: lines that become no rows, and replayed records that do.

There is no table of records in which a replayed dead letter could be found, so it is marked here as replayed.

Belongs here: their rows in the table of rejects. Does not belong here: judging lines (`direct_lines.py`).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.reasons import Outcome
from etl_assets.steps.exceptions import Exceptions, commit_exceptions

if TYPE_CHECKING:
    from etl_assets.ingest.direct_lines import Judged, JudgedLine
    from etl_assets.pipelines.declared import DeclaredTables
    from etl_assets.sources.batch_plan import BatchPlan
    from etl_assets.steps.step import StepContext

_COLUMNS = (
    *("exception_id", "stage", "outcome", "reason", "error", "record", "record_encoding", "source"),
    *("source_position", "event_id", "original_offset", "trace_id", "partition_date"),
)


def commit_direct_rejects(
    context: StepContext,
    tables: DeclaredTables,
    judged: Judged,
    *,
    stage: str,
    plan: BatchPlan,
    folder: Path,
) -> None:
    """Commit what was rejected, and the replays that were accepted, if there are any.

    Args:
        context: The step's context.
        tables: The pipeline's tables.
        judged: What became of the lines.
        stage: Name of the stage in rejects.
        plan: The batch: the commit names it, and counts once its rows are committed.
        folder: Folder for temporary files.
    """
    rows = [
        *(_rejected(each, stage) for each in judged.rejected),
        *(_replayed(each, stage) for each in judged.replayed),
    ]
    if not rows:
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"original_offset": pa.int64(), "partition_date": pa.date32()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in _COLUMNS])
    path = folder / "rejects.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    made = context.spark.read.parquet(str(path))
    commit_exceptions(
        context,
        tables.rejects,
        lambda stamps: Exceptions(frame=stamps.on(made)),
        output=tables.table.name,
        days=plan.days,
        facts=plan.facts(),
    )


def _rejected(line: JudgedLine, stage: str) -> dict[str, Any]:
    return {
        **_place(line, stage),
        "outcome": Outcome.REJECTED.value,
        "reason": line.reason,
        "error": line.error,
        "record": line.record,
        "record_encoding": line.record_encoding,
    }


def _replayed(line: JudgedLine, stage: str) -> dict[str, Any]:
    return {**_place(line, stage), "outcome": Outcome.REPLAYED.value}


def _place(line: JudgedLine, stage: str) -> dict[str, Any]:
    # A file that was changed after it had been read may have another record at the same position.
    parts = (stage, line.source, line.source_position, line.record_id or line.record or "")
    return {
        "exception_id": hashlib.sha256("|".join(parts).encode()).hexdigest(),
        "stage": stage,
        "source": line.source,
        "source_position": line.source_position,
        "event_id": line.record_id,
        "original_offset": line.offset,
        "partition_date": line.day,
    }
