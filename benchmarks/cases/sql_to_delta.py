"""sql_to_delta: a query over PostgreSQL into a Delta table by a declared pipeline that keeps no records,
beside a bare COPY into Arrow and an append by delta-rs.
"""

from __future__ import annotations

import shutil

from benchmarks.cases.bulk import WrongRows
from benchmarks.measure import Measured, empty_folder, interleaved, median, run_script
from benchmarks.options import Options, script_environment
from benchmarks.report import Figure, figure
from benchmarks.scripts.sql_by_platform import DONE, TABLE, WARM
from benchmarks.sql_database import COLUMNS, QUERY, sales_database, spark_of

CASE = "sql_to_delta"
WALL_TARGET = 2.0
OURS, OTHER = "platform", "by hand"


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    work = options.folder / CASE
    with sales_database(options.events) as database:
        environment = {**script_environment(), **database.environment}

        def ours() -> Measured:
            home = empty_folder(work / "home")
            pipeline = {
                "name": "sale",
                "source": {
                    "type": "sql",
                    "connection": "shop",
                    "query": QUERY,
                    "keep_records": False,
                    "incremental_key": "updated_at",
                    "incremental_id_key": "sale_id",
                },
                "columns": COLUMNS,
                "table": {"keys": ["sale_id"], "sequence_by": "updated_at"},
            }
            measured = run_script(
                "sql_by_platform",
                {
                    "home": str(home),
                    "connection": database.connection,
                    "pipeline": pipeline,
                    "spark": spark_of(options, work / "scratch"),
                },
                environment,
                servers=[database.server],
            )
            return _whole(measured, {TABLE: options.events})

        def by_hand() -> Measured:
            table = empty_folder(work / "by_hand") / "sale"
            measured = run_script(
                "sql_to_delta_by_hand",
                {"address": database.address, "query": QUERY, "table": str(table)},
                environment,
                servers=[database.server],
            )
            return _whole(measured, {"sale": options.events})

        measured = interleaved(options.runs, {OURS: ours, OTHER: by_hand})
    shutil.rmtree(work, ignore_errors=True)
    return _figures(measured[OURS], measured[OTHER])


def _figures(ours: list[Measured], other: list[Measured]) -> list[Figure]:
    load = median([*ours, *other], lambda run: run.load)
    found = []
    for name, until in (("path", DONE),):
        for kind, of in (("cpu", Measured.cpu_seconds), ("wall", Measured.wall_seconds)):
            found.append(
                figure(
                    CASE,
                    f"{name}_{kind}_seconds",
                    median(ours, lambda run, of=of, until=until: of(run, until, WARM)),
                    median(other, lambda run, of=of: of(run, DONE, WARM)),
                    load=load,
                    target=WALL_TARGET if (name, kind) == ("path", "wall") else None,
                )
            )
    return found


def _whole(measured: Measured, expected: dict[str, int]) -> Measured:
    found = measured.marks["verified"].figures
    if found != expected:
        raise WrongRows(f"a side of {CASE} ended with the rows {found}, not {expected}")
    return measured
