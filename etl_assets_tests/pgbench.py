"""pgbench, the client that comes with PostgreSQL, as a writer that is not of this project."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from etl_assets.stack.postgres import find_binaries


def pgbench(arguments: Sequence[str], *, port: int, user: str, database: str, password: str) -> int:
    """Run two clients until they end, or their server does, and return the number of transactions."""
    done = subprocess.run(
        [
            *(str(find_binaries() / "pgbench"), "--no-vacuum", "--client", "2", *arguments),
            *("--host", "127.0.0.1", "--port", str(port), "--username", user, database),
        ],
        env={**os.environ, "PGPASSWORD": password},
        capture_output=True,
        text=True,
        check=False,
    )
    made = [line for line in done.stdout.splitlines() if line.startswith("number of transactions actually")]
    return sum(int(line.split(":")[1].split("/")[0]) for line in made)
