"""The tables that the platform keeps for itself, whatever pipelines it runs."""

from __future__ import annotations

from etl_assets.contracts.tables.capture_states import CAPTURE_STATES
from etl_assets.contracts.tables.effects import EFFECTS
from etl_assets.contracts.tables.replays import REPLAYS
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.pipelines.stage import SystemTable
from etl_assets.pipelines.undo_policy import UndoPolicy

_WHAT_WAS_DONE = UndoPolicy(
    refusal="it says what was done and handed in, and that is not undone by forgetting it",
    fix="leave it as it is; to correct a dead letter again: `etl-assets dead-letters replay`",
)
_WHERE_CAPTURES_ARE = UndoPolicy(
    refusal="it says how far captured tables are, and an older state may lack what has happened to them",
    fix="leave it as it is; to copy a captured table again: `etl-assets cdc rollback CAPTURE TABLE --copy`",
)

SYSTEM_TABLES = (
    SystemTable(table=CAPTURE_STATES, placement=PlacementClass.INGEST, undo=_WHERE_CAPTURES_ARE),
    SystemTable(table=REPLAYS, placement=PlacementClass.INGEST, undo=_WHAT_WAS_DONE),
    SystemTable(table=EFFECTS, placement=PlacementClass.SINK, undo=_WHAT_WAS_DONE),
)
