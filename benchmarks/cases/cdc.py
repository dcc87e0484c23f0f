"""cdc: the messages of 200,000 updates from PostgreSQL's log, decoded, and as Arrow columns.

The server has written the messages before the clock starts; what it takes for its own decoding is a figure
beside it.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.cases.bulk import WrongRows
from benchmarks.measure import Measured, interleaved, median, run_script
from benchmarks.options import Options, script_environment
from benchmarks.report import Figure, figure
from benchmarks.scripts.cdc_decode import COLLECTED, DECODED, READ
from benchmarks.sql_database import SalesDatabase, sales_database

CASE = "cdc"
DECODE_TARGET = 1.0
"""CPU seconds for 150,000 changes, without their values in Arrow."""
OURS = "platform"
_CHANGES, _CHANGES_PER_FIGURE = 200_000, 150_000
_SLOT, _PUBLICATION = "bench", "bench"


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    with sales_database(_CHANGES) as database:
        _change(database)
        measured = interleaved(options.runs, {OURS: lambda: _measured(database)})[OURS]
    load = median(measured, lambda run: run.load)
    return [
        figure(
            CASE,
            "decode_cpu_seconds_of_150000_changes",
            median(measured, _seconds(READ, DECODED)),
            load=load,
            target=DECODE_TARGET,
        ),
        figure(
            CASE,
            "decode_and_arrow_cpu_seconds_of_150000_changes",
            median(measured, _seconds(DECODED, COLLECTED)),
            load=load,
        ),
        figure(
            CASE,
            "server_wall_seconds_of_150000_changes",
            median(measured, lambda run: run.marks[READ].figures["seconds"] * _CHANGES_PER_FIGURE / _CHANGES),
            load=load,
        ),
    ]


def _seconds(since: str, until: str) -> Callable[[Measured], float]:
    return lambda run: run.cpu_seconds(until, since) * _CHANGES_PER_FIGURE / _CHANGES


def _change(database: SalesDatabase) -> None:
    """Update every row once, in transactions of 1,000."""
    import psycopg

    with psycopg.connect(database.address, autocommit=True) as session:
        session.execute(f"CREATE PUBLICATION {_PUBLICATION} FOR TABLE sale".encode())
        session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [_SLOT])
        for first in range(1, _CHANGES + 1, 1_000):
            session.execute(
                "UPDATE sale SET amount = amount + 1, updated_at = updated_at + interval '1 day'"
                " WHERE sale_id BETWEEN %s AND %s",
                [first, first + 999],
            )


def _measured(database: SalesDatabase) -> Measured:
    told = {"address": database.address, "slot": _SLOT, "publication": _PUBLICATION}
    found = run_script("cdc_decode", told, script_environment())
    if (rows := found.marks[COLLECTED].figures["rows"]) != _CHANGES:
        raise WrongRows(f"{rows:,} changes were read, not {_CHANGES:,}")
    return found
