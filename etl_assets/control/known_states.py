"""States of all pipelines as this installation last knew them, so that data never waits for the store.

Belongs here: reading the states, and the copy in the home folder that stands in while the store does not
answer. Does not belong here: what a state allows (`states.py`), and runs (`run_controls.py`).
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.control.states import ControlState
from etl_assets.errors import ControlStoreUnavailable, ControlStoreUnusable

if TYPE_CHECKING:
    from etl_assets.control.records import PipelineControl
    from etl_assets.settings import Settings

STORE_FILE = "control.db"
_COPY = "control-states.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownStates:
    """States of pipelines.

    Attributes:
        by_pipeline: States of the pipelines that are not IDLE.
        problem: Why the store did not answer; None if it did, and the states are those of now.
        as_of: When the store answered last (UTC); None if it never did.
    """

    by_pipeline: Mapping[str, ControlState] = field(default_factory=dict)
    problem: str | None = None
    as_of: dt.datetime | None = None

    def of(self, pipeline: str) -> ControlState:
        """Return the state of a pipeline; IDLE if nothing else is known."""
        return self.by_pipeline.get(pipeline, ControlState.IDLE)

    def left_out(self, pipelines: Iterable[str]) -> dict[str, ControlState]:
        """Return those of some pipelines that are not to be followed, with their states."""
        return {name: self.of(name) for name in pipelines if not self.of(name).is_followed}


def was_controlled(settings: Settings) -> bool:
    """Return whether run control has been used: if not, every pipeline is IDLE, and no store is opened."""
    return settings.control.connection is not None or (settings.home / STORE_FILE).exists()


def look_at_states(settings: Settings) -> KnownStates:
    """Return the states of all pipelines, from the store or as they were last known.

    Raises:
        SettingsError: `control.connection` is no connection to PostgreSQL.
    """
    if not was_controlled(settings):
        return KnownStates()
    from etl_assets.control.run_controls import RunControls
    from etl_assets.control.store import open_store

    try:
        store = open_store(settings)
        try:
            return keep_states(settings.home, RunControls(store).all())
        finally:
            store.close()
    except (ControlStoreUnavailable, ControlStoreUnusable) as error:
        return last_known(settings.home, str(error.message))


def keep_states(home: Path, controls: Iterable[PipelineControl]) -> KnownStates:
    """Return states that the store has just given, and keep a copy of them in the home folder."""
    states = {
        control.pipeline: control.state for control in controls if control.state is not ControlState.IDLE
    }
    known = KnownStates(by_pipeline=states, as_of=dt.datetime.now(dt.UTC))
    before = last_known(home, "")
    if before.as_of is None or before.by_pipeline != states:
        content = {"states": {name: state.value for name, state in states.items()}}
        part = home / f".{_COPY}.{os.getpid()}"
        with suppress(OSError):  # a full disk, for instance: the older copy stays
            part.write_text(json.dumps(content), "utf-8")
            part.replace(home / _COPY)
    else:
        with suppress(OSError):
            os.utime(home / _COPY)
    return known


def last_known(home: Path, problem: str) -> KnownStates:
    """Return the copy in the home folder; without one, every pipeline is IDLE."""
    file = home / _COPY
    try:
        content = json.loads(file.read_text("utf-8"))
        states = {str(name): ControlState(state) for name, state in content["states"].items()}
        as_of = dt.datetime.fromtimestamp(file.stat().st_mtime, dt.UTC)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return KnownStates(problem=problem)
    return KnownStates(by_pipeline=states, problem=problem, as_of=as_of)
