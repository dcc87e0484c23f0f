"""sql_to_postgres: 200,000 rows of a query over PostgreSQL by a declared pipeline that keeps no records into
a table of PostgreSQL, beside psql's COPY out, COPY in and upsert.
"""

from __future__ import annotations

import shutil

from benchmarks.cases.bulk import WrongRows
from benchmarks.measure import Measured, empty_folder, interleaved, median, run_script
from benchmarks.options import Options, script_environment
from benchmarks.report import Figure, figure
from benchmarks.scripts.sql_by_platform import DELIVERED, DONE, TABLE, WARM
from benchmarks.sql_database import COLUMNS, QUERY, SalesDatabase, sales_database, spark_of

CASE = "sql_to_postgres"
WALL_TARGET = 1.5
OURS, OTHER = "platform", "by hand"
_SHARE = 5
"""What part of the events of other cases are rows here: 200,000 of 1,000,000."""


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    rows, work = max(1, options.events // _SHARE), options.folder / CASE
    with sales_database(rows) as database:
        environment = {**script_environment(), **database.environment}

        def ours() -> Measured:
            database.empty_target()
            home = empty_folder(work / "home")
            source = {
                "type": "sql",
                "connection": "shop",
                "query": QUERY,
                "keep_records": False,
                "incremental_key": "updated_at",
                "incremental_id_key": "sale_id",
            }
            pipeline = {
                "name": "sale",
                "source": source,
                "columns": COLUMNS,
                "table": {"keys": ["sale_id"], "sequence_by": "updated_at"},
                "sinks": [{"type": "postgres", "connection": "shop", "table": "marts.sale"}],
            }
            given = {
                "home": str(home),
                "connection": database.connection,
                "pipeline": pipeline,
                "spark": spark_of(options, work / "scratch"),
            }
            return _whole(
                run_script("sql_by_platform", given, environment, servers=[database.server]), database, rows
            )

        def by_hand() -> Measured:
            database.empty_target()
            given = {"address": database.address, "query": QUERY, "columns": list(COLUMNS)}
            return _whole(
                run_script("sql_to_postgres_by_hand", given, environment, servers=[database.server]),
                database,
                rows,
            )

        measured = interleaved(options.runs, {OURS: ours, OTHER: by_hand})
    shutil.rmtree(work, ignore_errors=True)
    return _figures(measured[OURS], measured[OTHER])


def _figures(ours: list[Measured], other: list[Measured]) -> list[Figure]:
    load = median([*ours, *other], lambda run: run.load)
    found = []
    for name, since, until in (
        ("table", WARM, TABLE),
        ("delivery", TABLE, DELIVERED),
        ("path", WARM, DONE),
    ):
        for kind, of in (("cpu", Measured.cpu_seconds), ("wall", Measured.wall_seconds)):
            found.append(
                figure(
                    CASE,
                    f"{name}_{kind}_seconds",
                    median(ours, lambda run, of=of, since=since, until=until: of(run, until, since)),
                    median(other, lambda run, of=of: of(run, DONE, WARM)),
                    load=load,
                    target=WALL_TARGET if (name, kind) == ("path", "wall") else None,
                )
            )
    return found


def _whole(measured: Measured, database: SalesDatabase, rows: int) -> Measured:
    if (found := database.target_rows()) != rows:
        raise WrongRows(f"a side of {CASE} ended with {found} rows in the target, not {rows}")
    return measured
