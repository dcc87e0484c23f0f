"""What the Dagster UI shows of captured tables: an observation of a table's asset when its state changes.

A table in error makes no materialization, so its reason and solution would be seen nowhere in the UI.

Belongs here: when a table is reported. Does not belong here: what is reported (`metadata.py`), and sending it
(`reports.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from etl_assets.errors import EtlAssetsError
from etl_assets.metadata import capture_metadata
from etl_assets.sources.captures.phases import TablePhase

if TYPE_CHECKING:
    from etl_assets.settings import Settings
    from etl_assets.sources.captures.table_states import CapturedTableState

logger = logging.getLogger(__name__)


class CapturedPhases:
    """Compares the states of captured tables with those that were reported last, in one thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._told: dict[str, object] = {}
        self._unknown: object = _QUIET

    def news(self) -> Iterator[dg.AssetObservation]:
        """Yield an observation of each table with another phase or error than at the last call.

        The first call leaves out the tables that are `ready`: a worker that was started again does not report
        a hundred of them. What cannot be read now is reported later. A table without a pipeline has no
        asset, and is not reported.
        """
        from etl_assets.captures import captured_tables, states_of

        try:
            marks = {each.pipeline: _mark(each) for each in states_of(self._settings)}
        except (EtlAssetsError, OSError) as error:
            logger.warning("the states of captured tables cannot be read: %s", error)
            return
        changed = [name for name, mark in marks.items() if mark != self._told.get(name, self._unknown)]
        views = captured_tables(self._settings, changed) if changed else {}
        for name, mark in marks.items():
            if name in views:
                self._told[name] = _mark(views[name].state)
            elif name not in changed:
                self._told[name] = mark
        self._unknown = None
        for name, view in views.items():
            yield dg.AssetObservation(name, metadata=capture_metadata(view))


_QUIET = TablePhase.READY.value


def _mark(state: CapturedTableState) -> object:
    """Return what is the same for as long as nothing has to be told. Each attempt of an error is."""
    error, attempts = state.error, state.attempts
    if error is None:
        return state.phase.value
    return error.reason, error.solution, error.retry, 0 if attempts is None else attempts.number
