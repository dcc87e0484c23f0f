"""The alert file: `<home>/alerts.jsonl`, one line for whatever somebody should look at. Holds no row values.

What each kind means and what to do stands in docs/operations.md, under a heading of its own.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path


class AlertKind(StrEnum):
    """Every kind of line."""

    RUN_FAILED = "RunFailed"
    UNDO_UNFINISHED = "UndoUnfinished"
    DOMAIN_LOST = "DomainLost"
    DOMAIN_BACK = "DomainBack"
    STAGE_STOPPED = "StageStopped"
    STAGE_RUNS = "StageRuns"
    ONE_LOSS_LOSES = "OneLossLoses"
    ONE_LOSS_SAFE = "OneLossSafe"
    TABLE_TROUBLED = "TableTroubled"
    TABLE_WELL = "TableWell"


_LOOKED_AT_BYTES = 1 << 20
"""How far back a line of the same run is looked for."""


def write_alert(home: Path, kind: AlertKind, alert: Mapping[str, str]) -> None:
    """Append a line; `at` and `kind` are added."""
    home.mkdir(parents=True, exist_ok=True)
    line = {"at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"), "kind": kind.value, **alert}
    with (home / "alerts.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def run_was_reported(home: Path, run_id: str) -> bool:
    """Whether the file has a line about a run: written by the process that ran it, or by the sensor."""
    try:
        with (home / "alerts.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _LOOKED_AT_BYTES))
            return json.dumps(run_id).encode() in file.read()
    except FileNotFoundError:
        return False
