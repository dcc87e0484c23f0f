"""capture_states: the states of captured tables, for a machine that takes over with an empty home folder."""

from __future__ import annotations

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.rules import AtLeast
from etl_assets.contracts.tables.recurring_columns import BATCH_ID, label

CAPTURE_STATES = TableContract(
    name="capture_states",
    description=(
        "How far each captured table is, and which spool a capture is served from. With several failure"
        " domains and the control store in the home folder, another machine goes on from it."
    ),
    columns=(
        label("capture", "The capture."),
        label("source_table", "Schema and name in the source; `*` in the row that names the spool in use."),
        Column("version", "BIGINT", "How often the state was changed; 0 of a spool.", rules=(AtLeast(0),)),
        label("state", "The state, as JSON."),
        BATCH_ID,
    ),
    merge_key=("capture", "source_table"),
    ordering="batch_id",
)
