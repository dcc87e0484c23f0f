"""cold: from the start of a process to the first acknowledged merge of ten rows, beside Spark and Delta as
they come.

The platform is told that its run is short (`spark.start: quick`), as it finds out by itself for the steps of
its data path; figures without are beside it. Both sides get a table of a thousand rows that neither has seen,
and a file of ten rows of which five are new.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import Measured, empty_folder, interleaved, median, run_script
from benchmarks.options import Options, script_environment
from benchmarks.report import Figure, figure
from etl_assets.settings import JvmStart

CASE = "cold"
CPU_TARGET, WALL_TARGET = 0.35, 0.45
OURS, UNKNOWN, OTHER = "platform", "platform, size unknown", "default"
ROWS, KNOWN, NEW = 1_000, 5, 5
_SCHEMA = "order_id STRING, amount DOUBLE, updated_at TIMESTAMP"
_FIRST, _SECOND = dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


class WrongRows(Exception):
    """A side did not end with the rows it should: its time says nothing."""


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    work = options.folder / CASE
    sides = {
        OURS: _side(options, work / "platform", "cold_by_platform", JvmStart.QUICK),
        UNKNOWN: _side(options, work / "unknown", "cold_by_platform", JvmStart.AUTO),
        OTHER: _side(options, work / "default", "cold_by_default"),
    }
    measured = interleaved(options.runs, sides)
    shutil.rmtree(work, ignore_errors=True)
    return _figures(measured[OURS], measured[UNKNOWN], measured[OTHER])


def _side(
    options: Options, root: Path, script: str, start: JvmStart = JvmStart.AUTO
) -> Callable[[], Measured]:
    def run_side() -> Measured:
        from etl_assets.runtime.jars import delta_jars

        table = _prepare(empty_folder(root))
        arguments: dict[str, Any] = {
            "root": str(root),
            "table": str(table),
            "rows": str(root / "rows.json"),
            "schema": _SCHEMA,
            "jars": ",".join(map(str, delta_jars())),
            "spark": dict(options.spark),
            "start": start.value,
        }
        measured = run_script(script, arguments, script_environment())
        if (rows := measured.marks["verified"].figures["rows"]) != ROWS + NEW:
            raise WrongRows(f"{script} ended with {rows} rows, not {ROWS + NEW}")
        return measured

    return run_side


def _prepare(root: Path) -> Path:
    """The table, written by delta-rs, and the file beside it."""
    import pyarrow as pa
    from deltalake import write_deltalake

    from etl_assets.placement.domains import FailureDomain

    table = FailureDomain(name="local", root=root).table_path("orders")
    rows = pa.table(
        {
            "order_id": [f"order-{number}" for number in range(ROWS)],
            "amount": [float(number) for number in range(ROWS)],
            "updated_at": pa.array([_FIRST] * ROWS, pa.timestamp("us", "UTC")),
        }
    )
    write_deltalake(str(table), rows)
    sent = (
        {"order_id": f"order-{number}", "amount": 1.5, "updated_at": _SECOND.isoformat()}
        for number in range(ROWS - KNOWN, ROWS + NEW)
    )
    (root / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in sent), "utf-8")
    return table


def _figures(ours: list[Measured], unknown: list[Measured], other: list[Measured]) -> list[Figure]:
    load = median([*ours, *other], lambda run: run.load)

    def compare(metric: str, value: Callable[[Measured], float], target: float | None = None) -> Figure:
        return figure(CASE, metric, median(ours, value), median(other, value), load=load, target=target)

    def both(value: Callable[[Measured], float]) -> tuple[float, float]:
        return median(unknown, value), median(other, value)

    return [
        compare("cpu_seconds", lambda run: run.cpu_seconds("merged"), CPU_TARGET),
        compare("wall_seconds", lambda run: run.wall_seconds("merged"), WALL_TARGET),
        compare("session_cpu_seconds", lambda run: run.cpu_seconds("session")),
        compare("session_wall_seconds", lambda run: run.wall_seconds("session")),
        compare("peak_resident_mib", lambda run: run.peak_resident_mib("merged")),
        figure(CASE, "cpu_seconds_size_unknown", *both(lambda run: run.cpu_seconds("merged")), load=load),
        figure(CASE, "wall_seconds_size_unknown", *both(lambda run: run.wall_seconds("merged")), load=load),
    ]
