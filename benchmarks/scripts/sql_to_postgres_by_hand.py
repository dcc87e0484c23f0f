"""A query over PostgreSQL into a table of PostgreSQL as a good engineer writes it by hand: psql's COPY out,
into psql's COPY into a temporary table, and one upsert from it.

It does without: positions, going on where it stopped, what is new, deletes, types of a contract.
"""

from __future__ import annotations

import subprocess

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments

WARM, DONE = "session", "done"


def main() -> None:
    told = arguments()
    psql = [
        "psql",
        "--no-psqlrc",
        "--quiet",
        "--set=ON_ERROR_STOP=1",
        "--single-transaction",
        told["address"],
    ]
    columns = told["columns"]
    updates = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    subprocess.run(
        [*psql, "-c", "CREATE TABLE marts.sale (LIKE sale INCLUDING INDEXES)"], check=True, timeout=60
    )
    mark(WARM)
    with subprocess.Popen(
        [*psql, "-c", f"\\copy ({told['query']}) TO PSTDOUT"], stdout=subprocess.PIPE
    ) as reading:
        subprocess.run(
            [
                *psql,
                *("-c", "CREATE TEMPORARY TABLE incoming (LIKE marts.sale)"),
                *("-c", "\\copy incoming FROM PSTDIN"),
                "-c",
                "INSERT INTO marts.sale SELECT * FROM incoming ON CONFLICT (sale_id) DO UPDATE SET "
                + updates
                + " WHERE marts.sale.updated_at <= excluded.updated_at",
            ],
            stdin=reading.stdout,
            check=True,
            timeout=600,
        )
    if reading.returncode:
        raise SystemExit(reading.returncode)
    mark(DONE)


if __name__ == "__main__":
    main()
