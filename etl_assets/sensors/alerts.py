"""The alert file `<home>/alerts.jsonl`: one line for each event that needs an operator. Holds no row values.

docs/operations.md has a section for each kind, with its meaning and what to do.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path


class AlertKind(StrEnum):
    """Kind of an alert."""

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
    SINK_DOWN = "SinkDown"
    SINK_SLOW = "SinkSlow"
    SINK_BACK = "SinkBack"
    SOURCE_PAUSED = "SourcePaused"
    SOURCE_RESUMED = "SourceResumed"


_LOOKED_AT_BYTES = 1 << 20
"""Size of the file's tail that is searched for an earlier alert of the same run."""


def write_alert(home: Path, kind: AlertKind, alert: Mapping[str, str]) -> None:
    """Append an alert with `at` and `kind` added."""
    home.mkdir(parents=True, exist_ok=True)
    line = {"at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"), "kind": kind.value, **alert}
    with (home / "alerts.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def run_was_reported(home: Path, run_id: str) -> bool:
    """Return whether the file has an alert of a run, written by the sensor or by the process that ran it."""
    try:
        with (home / "alerts.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _LOOKED_AT_BYTES))
            return json.dumps(run_id).encode() in file.read()
    except FileNotFoundError:
        return False
