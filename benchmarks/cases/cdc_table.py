"""cdc_table: a table of PostgreSQL by its log: the first copy, and the updates of a fifth of its rows.

The copy beside a bare COPY into Arrow and an append by delta-rs; the updates beside dlt's incremental merge,
which finds the changed rows by an indexed time. Both begin with the same rows and make the same updates.

The updates also beside the sum of what others take for their parts: PostgreSQL for decoding its log,
supabase/etl for reading it into nothing, and Delta for one MERGE of the changed rows, in a session that has
merged before.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.cases.bulk import WrongRows
from benchmarks.measure import Measured, empty_folder, interleaved, median, run_script
from benchmarks.options import Options, script_environment
from benchmarks.peers import Peer, python_of
from benchmarks.report import Figure, figure
from benchmarks.scripts import dlt_merge, log_and_merge_by_hand, sql_to_delta_by_hand
from benchmarks.scripts.cdc_by_platform import APPLIED, CHANGED, COPIED, WARM
from benchmarks.sql_database import COLUMNS, QUERY, SalesDatabase, sales_database, spark_of

CASE = "cdc_table"
COPY_TARGET, APPLY_TARGET, PARTS_TARGET = 2.0, 0.25, 1.5
OURS, BY_HAND, DLT, PARTS = "platform", "by hand", "dlt", "decoding and one MERGE"
SUPABASE_SECONDS = {"wall": 2.3 / 200_000, "cpu": 1.15 / 200_000}
"""What supabase/etl takes for an update of the log, with a destination that drops it: the best of some runs
of 200,000 updates on a machine with two cores, measured once. Its wall time has the server's decoding in it.
"""
_EVERY = 5
_SLOT = "sale"


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    work = options.folder / CASE
    with sales_database(options.events) as database:
        python = python_of(Peer.DLT, options.folder)
        sides = {
            OURS: lambda: _ours(options, database, work),
            BY_HAND: lambda: _by_hand(options, database, work),
            DLT: lambda: _dlt(options, python, database, work),
            PARTS: lambda: _parts(options, database, work),
        }
        measured = interleaved(options.runs, sides)
    shutil.rmtree(work, ignore_errors=True)
    return [*_figures(measured), *_parts_figures(measured, options.events // _EVERY)]


def _ours(options: Options, database: SalesDatabase, work: Path) -> Measured:
    _begin_again(database)
    pipeline = {
        "name": "sale",
        "source": {
            "type": "postgres_cdc",
            "connection": "shop",
            "table": "public.sale",
            "slot": _SLOT,
            "publication": _SLOT,
            "keep_records": False,
        },
        "columns": COLUMNS,
        "table": {"keys": ["sale_id"]},
    }
    measured = run_script(
        "cdc_by_platform",
        {
            "home": str(empty_folder(work / "home")),
            "connection": database.connection,
            "address": database.address,
            "rows": options.events,
            "every": _EVERY,
            "pipeline": pipeline,
            "spark": spark_of(options, work / "scratch"),
        },
        {**script_environment(), **database.environment},
        servers=[database.server],
    )
    _execute(database, f"SELECT pg_drop_replication_slot('{_SLOT}')")
    return _whole(measured, {"rows": options.events, "cents": _cents(database)})


def _by_hand(options: Options, database: SalesDatabase, work: Path) -> Measured:
    table = empty_folder(work / "by_hand") / "sale"
    told = {"address": database.address, "query": QUERY, "table": str(table)}
    measured = run_script(
        "sql_to_delta_by_hand",
        told,
        {**script_environment(), **database.environment},
        servers=[database.server],
    )
    return _whole(measured, {"sale": options.events})


def _dlt(options: Options, python: str, database: SalesDatabase, work: Path) -> Measured:
    _begin_again(database)
    measured = run_script(
        "dlt_merge",
        {
            "home": str(empty_folder(work / "dlt")),
            "address": database.address,
            "rows": options.events,
            "every": _EVERY,
        },
        {**script_environment(), **database.environment},
        python=python,
        servers=[database.server],
    )
    return _whole(measured, {"rows": options.events})


def _parts(options: Options, database: SalesDatabase, work: Path) -> Measured:
    _begin_again(database)
    measured = run_script(
        "log_and_merge_by_hand",
        {
            "folder": str(empty_folder(work / "parts")),
            "address": database.address,
            "query": QUERY,
            "rows": options.events,
            "every": _EVERY,
            "spark": spark_of(options, work / "scratch"),
        },
        {**script_environment(), **database.environment},
        servers=[database.server],
    )
    expected = {"updates": options.events // _EVERY, "rows": options.events, "cents": _cents(database)}
    return _whole(measured, expected)


def _begin_again(database: SalesDatabase) -> None:
    """Give all rows their first times again, so that the next updates have the newest ones."""
    _execute(
        database,
        "UPDATE sale SET updated_at = '2026-01-01'::timestamptz + sale_id * interval '1 second'"
        f" WHERE sale_id % {_EVERY} = 0",
    )
    _execute(database, "VACUUM ANALYZE sale")


def _cents(database: SalesDatabase) -> int | None:
    return _execute(database, "SELECT (sum(amount) * 100)::bigint FROM sale")


def _execute(database: SalesDatabase, statement: str) -> int | None:
    import psycopg

    with psycopg.connect(database.address, autocommit=True) as session:
        done = session.execute(statement.encode())
        row = None if done.description is None else done.fetchone()
    return None if row is None else row[0]


def _whole(measured: Measured, expected: dict[str, int | None]) -> Measured:
    found = measured.marks["verified"].figures
    if found != expected:
        raise WrongRows(f"a side of {CASE} ended with {found}, not {expected}")
    return measured


def _figures(measured: dict[str, list[Measured]]) -> list[Figure]:
    load = median([each for runs in measured.values() for each in runs], lambda run: run.load)
    sides = {
        "copy": (COPIED, WARM, BY_HAND, sql_to_delta_by_hand.DONE, sql_to_delta_by_hand.WARM, COPY_TARGET),
        "apply": (APPLIED, CHANGED, DLT, dlt_merge.MERGED, dlt_merge.CHANGED, APPLY_TARGET),
    }
    found = []
    for name, (until, since, other, other_until, other_since, target) in sides.items():
        for kind, of in (("cpu", Measured.cpu_seconds), ("wall", Measured.wall_seconds)):
            ours = median(measured[OURS], lambda run, of=of, end=until, begin=since: of(run, end, begin))
            theirs = median(
                measured[other], lambda run, of=of, end=other_until, begin=other_since: of(run, end, begin)
            )
            wanted = target if kind == "wall" else None
            found.append(figure(CASE, f"{name}_{kind}_seconds", ours, theirs, load=load, target=wanted))
    return found


def _parts_figures(measured: dict[str, list[Measured]], updates: int) -> list[Figure]:
    parts, ours = measured[PARTS], measured[OURS]
    load = median([*parts, *ours], lambda run: run.load)
    marks = log_and_merge_by_hand
    found = []
    for kind, of in (("cpu", Measured.cpu_seconds), ("wall", Measured.wall_seconds)):
        decoded = median(parts, lambda run, of=of: of(run, marks.DECODED, marks.CHANGED))
        merged = median(parts, lambda run, of=of: of(run, marks.MERGED, marks.TAKEN))
        applied = median(ours, lambda run, of=of: of(run, APPLIED, CHANGED))
        together = decoded + SUPABASE_SECONDS[kind] * updates + merged
        wanted = PARTS_TARGET if kind == "wall" else None
        found += [
            figure(CASE, f"parts_{kind}_seconds", applied, together, load=load, target=wanted),
            figure(CASE, f"server_decodes_{kind}_seconds", decoded, load=load),
            figure(CASE, f"one_merge_{kind}_seconds", merged, load=load),
        ]
    return found
