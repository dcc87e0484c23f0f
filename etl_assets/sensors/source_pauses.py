"""Pauses of sources, asked for before a source is read. Each pause is recorded, and reported once.

Belongs here: the record that all processes of an installation share, and the alerts. Does not belong here:
the decision (`observability/lag_limits.py`).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import fcntl
import json
from contextlib import suppress
from typing import TYPE_CHECKING

from etl_assets.observability.lag_limits import (
    FIX,
    PauseRecord,
    SourcePause,
    as_pauses,
    find_excesses,
    parse_pauses,
    pauses_file,
    recorded_pauses,
)
from etl_assets.sensors.alerts import AlertKind, write_alert
from etl_assets.steps.placing import once_led

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from etl_assets.settings import Settings

ALERT_AFTER_SECONDS = 10.0
"""A pause that is over by then is how a slow sink is waited for, and no alert is written."""


def paused_sources(settings: Settings, now: dt.datetime) -> dict[str, SourcePause]:
    """Return the pipelines whose source may not be read further now, each with the reason.

    Raises:
        EtlAssetsError, OSError: the tables cannot be read, so it is not known.
    """
    placement = settings.placement()
    excesses = once_led(placement, lambda: find_excesses(placement.reader(), settings, now))
    recorded = recorded_pauses(settings.home)
    if excesses or recorded:
        with suppress(OSError):  # the disk is full, for instance: the source is paused all the same
            recorded = _record(settings.home, as_pauses(excesses, recorded, now), now)
    return as_pauses(excesses, recorded, now)


def _record(home: Path, pauses: Mapping[str, SourcePause], now: dt.datetime) -> dict[str, PauseRecord]:
    """Record the pauses, write the alerts that are due, and return what is recorded."""
    with pauses_file(home).open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # another process writes for a moment
        file.seek(0)
        before = parse_pauses(file.read())
        after = {name: _recorded(pause, before.get(name), now) for name, pause in pauses.items()}
        for name, record in after.items():
            if record.told and not (name in before and before[name].told):
                _alert(home, AlertKind.SOURCE_PAUSED, name, f"{pauses[name]}\n  fix: {FIX}")
        for name in before.keys() - after.keys():
            if before[name].told:
                lasted = dt.timedelta(seconds=round(now.timestamp() - before[name].since))
                text = f"the source of {name} is read again after {lasted}; it was: {before[name].reason}"
                _alert(home, AlertKind.SOURCE_RESUMED, name, f"{text}\n  fix: nothing")
        file.truncate(0)
        json.dump({name: dataclasses.asdict(record) for name, record in after.items()}, file)
        return after


def _recorded(pause: SourcePause, before: PauseRecord | None, now: dt.datetime) -> PauseRecord:
    since = now.timestamp() if before is None else before.since
    told = (before is not None and before.told) or now.timestamp() - since >= ALERT_AFTER_SECONDS
    return PauseRecord(since=since, reason=pause.reason, told=told)


def _alert(home: Path, kind: AlertKind, pipeline: str, error: str) -> None:
    write_alert(home, kind, {"pipeline": pipeline, "error": error})
