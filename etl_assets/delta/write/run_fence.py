"""The fence of a pipeline's runs at a table: a superseded runner commits nothing, however late it wakes up.

The fence is a transaction id in the table's log, with the token of the runner that took over. A runner raises
it before it begins, where a runner before it was lost. A commit of a run reads it at the version that the
commit is planned on, so the pinned version makes the check and the commit one step.

A runner that was stopped inside of a commit holds the table's writer lock, and the next one cannot commit its
fence. So the next one also announces its token in a file beside the lock, which needs no lock. The holder
reads the file right before it writes. If it was stopped after that, its commit comes before the fence, and
the next runner plans on it.

Belongs here: checking, announcing and raising the fence. Does not belong here: when it is raised
(`worker/step_runner.py`).
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.delta.snapshot_cache import snapshot_in
from etl_assets.errors import LeaseLost

if TYPE_CHECKING:
    from etl_assets.delta.log.entries import LogEntry
    from etl_assets.delta.run_token import RunToken
    from etl_assets.delta.table import Table

_FENCE = "etl-assets.run/"
"""What the transaction ids of fences begin with; the pipeline's name follows."""
_read: dict[tuple[Path, str], tuple[int, int]] = {}
"""By folder and pipeline, the version that this process committed last, and the fence there."""


def fence_id(pipeline: str) -> str:
    """Return the transaction id of a pipeline's fence."""
    return f"{_FENCE}{pipeline}"


def expect_current_run(table: Table, folder: Path, base_version: int) -> None:
    """Refuse a commit of a run whose runner was superseded. A commit of no run is not looked at.

    Args:
        table: The table.
        folder: Folder of the replica that is committed to.
        base_version: The version that the commit follows; -1 if there is none.

    Raises:
        LeaseLost: a runner with a higher token has begun.
    """
    if (run := table.run) is None:
        return
    highest = max(_announced(table, run), _raised(folder, base_version, run))
    if highest > run.token:
        raise superseded(run, highest, what=f"the table {table.name}")


def expect_current_at_newest(table: Table) -> None:
    """Refuse the work of a run whose runner was superseded, by the newest version of a table.

    Raises:
        LeaseLost: a runner with a higher token has begun.
    """
    if table.run is not None:
        expect_current_run(table, table.path, table.version())


def superseded(run: RunToken, highest: int, *, what: str) -> LeaseLost:
    """Return the error of a runner that writes after another one has begun."""
    return LeaseLost(
        f"the run of {run.pipeline} with the fencing token {run.token} was taken over by a runner with the"
        f" token {highest}: nothing more is written to {what}",
        fix="nothing: the runner with the higher token goes on from the last commit. If this comes often,"
        " raise `control.lease_seconds`, or look for what stops the process for so long",
        pipeline=run.pipeline,
        token=run.token,
        highest=highest,
    )


def is_raised(table: Table) -> bool:
    """Return whether no lost runner can commit to a table any more, after announcing the token there.

    A table that does not exist has no log, and the announcement alone protects it.
    """
    run = table.run
    if run is None or not run.takes_over:
        return True
    if _announced(table, run) < run.token:
        _announce(table, run)
    version = table.version()
    return version < 0 or _raised(table.path, version, run) > run.lost


def keep_fence(table: Table, folder: Path, entry: LogEntry) -> None:
    """Keep the fence as of a commit that was just made: the next commit need not read the log for it."""
    if (run := table.run) is None:
        return
    fence = entry.transactions.get(fence_id(run.pipeline))
    if fence is None:
        fence = _raised(folder, entry.version - 1, run)
    _read[folder, run.pipeline] = (entry.version, fence)


def _raised(folder: Path, version: int, run: RunToken) -> int:
    at, fence = _read.get((folder, run.pipeline), (-1, -1))
    if at == version:
        return fence
    return snapshot_in(folder, version).transaction_version(fence_id(run.pipeline))


def _file(table: Table, run: RunToken) -> Path:
    return table.lock_path.with_name(f"{table.name}.{run.pipeline}.token")


def _announced(table: Table, run: RunToken) -> int:
    try:
        return int(_file(table, run).read_text("ascii"))
    except (FileNotFoundError, ValueError):
        return -1


def _announce(table: Table, run: RunToken) -> None:
    file = _file(table, run)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}-{threading.get_ident()}")
    part.write_text(str(run.token), "ascii")
    part.replace(file)
