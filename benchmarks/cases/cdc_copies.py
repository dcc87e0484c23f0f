"""cdc_copies: two tables of one capture copied at the same time, beside the same two one after the other.

A session reads each table (`read_sessions: 1`), so that each has one of the machine's two cores. With the two
sessions of the default one table may keep both cores busy by itself, and then a second one brings nothing:
those figures have no target.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.captured_home import CAPTURE, CapturedHome
from benchmarks.cases.bulk import WrongRows
from benchmarks.measure import Measured, empty_folder, interleaved, median, run_script
from benchmarks.options import Options, script_environment
from benchmarks.report import Figure, figure
from benchmarks.scripts.copies_by_platform import COPIED, WARM
from benchmarks.sql_database import SalesDatabase, sales_database, spark_of

CASE = "cdc_copies"
TARGET = 0.625
"""The most that the time of both at once may be of their times together: rows a second are 1.6 times as
many.
"""
TABLES, SMALL = ("sale", "sale_again"), ("small",)
_SESSIONS = {1: "one_session_each", 2: "two_sessions_each"}
_CREATE = (
    "CREATE TABLE sale_again (LIKE sale INCLUDING ALL)",
    "INSERT INTO sale_again SELECT * FROM sale",
    "VACUUM ANALYZE sale_again",
    "CREATE TABLE small (id bigint PRIMARY KEY, n int)",
    "INSERT INTO small SELECT i, i FROM generate_series(1, 1000) i",
)


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    work = options.folder / CASE
    with sales_database(options.events) as database:
        _execute(database, *_CREATE)
        sides: dict[str, Callable[[], Measured]] = {
            _side(sessions, at_once): partial(_copied, options, database, work, sessions, at_once)
            for sessions in _SESSIONS
            for at_once in (2, 1)
        }
        measured = interleaved(options.runs, sides)
    shutil.rmtree(work, ignore_errors=True)
    load = median([each for runs in measured.values() for each in runs], lambda run: run.load)
    found = []
    for sessions in _SESSIONS:
        for kind, of in (("wall", Measured.wall_seconds), ("cpu", Measured.cpu_seconds)):
            together, apart = (
                median(measured[_side(sessions, at_once)], lambda run, of=of: of(run, COPIED, WARM))
                for at_once in (2, 1)
            )
            metric = f"two_tables_{_SESSIONS[sessions]}_{kind}_seconds"
            target = TARGET if (sessions, kind) == (1, "wall") else None
            found.append(figure(CASE, metric, together, apart, load=load, target=target))
    return found


def _side(sessions: int, at_once: int) -> str:
    return f"{'both at once' if at_once == 2 else 'one after the other'}, read_sessions: {sessions}"


def _copied(options: Options, database: SalesDatabase, work: Path, sessions: int, at_once: int) -> Measured:
    home = CapturedHome(folder=empty_folder(work) / "home", address=database.address)
    home.declare(options, keep_records=False, read_sessions=sessions)
    measured = run_script(
        "copies_by_platform",
        {
            "home": str(home.folder),
            "at_once": at_once,
            "tables": [f"{CAPTURE}_{name}" for name in TABLES],
            "small": [f"{CAPTURE}_{name}" for name in SMALL],
            "spark": spark_of(options, work / "scratch"),
        },
        {**script_environment(), **home.environment},
        servers=[database.server],
    )
    _execute(
        database,
        f"SELECT pg_drop_replication_slot('{CAPTURE}')",
        f"DROP PUBLICATION {CAPTURE}",
        "CHECKPOINT",
    )
    found = measured.marks["verified"].figures
    if any(rows != options.events for rows in found.values()):
        raise WrongRows(f"the copies ended with {found}, not {options.events:,} rows each")
    return measured


def _execute(database: SalesDatabase, *statements: str) -> None:
    import psycopg

    with psycopg.connect(database.address, autocommit=True) as session:
        for each in statements:
            session.execute(each.encode())
