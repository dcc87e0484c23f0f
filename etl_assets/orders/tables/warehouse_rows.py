"""warehouse_rows: one keyed row per event, for sinks."""

from __future__ import annotations

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.rules import MaxCharacters, NotEmpty
from etl_assets.contracts.tables.recurring_columns import COMMIT_STAMPS, MAX_ID_CHARACTERS, label, position
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS, ORDER_COLUMNS

_NORMALIZED = NORMALIZED_ORDERS.name
WAREHOUSE_KEY_PREFIX = "warehouse://orders/"

WAREHOUSE_ROWS = TableContract(
    name="warehouse_rows",
    description=(
        "Every normalized order event under the key that sinks write it by. A lower offset never overwrites"
        " a higher one, so a row that is delivered twice changes nothing."
    ),
    columns=(
        Column(
            "warehouse_key",
            "STRING",
            f"Key of the row everywhere outside: `{WAREHOUSE_KEY_PREFIX}<tenant_id>/<event_id>`.",
            rules=(NotEmpty(), MaxCharacters(len(WAREHOUSE_KEY_PREFIX) + 2 * MAX_ID_CHARACTERS + 1)),
            derived_from=(f"{_NORMALIZED}.tenant_id", f"{_NORMALIZED}.event_id"),
        ),
        position(
            "normalized_offset",
            "Offset of the event in normalized_orders: the version guard of sinks.",
            derived_from=(f"{_NORMALIZED}.offset",),
        ),
        *(column.taken_from(_NORMALIZED) for column in ORDER_COLUMNS),
        label("sink_domain", "Failure domain that committed the row."),
        Column("committed_at", "TIMESTAMP", "When the row was committed, by the platform's clock (UTC)."),
        *COMMIT_STAMPS,
    ),
    merge_key=("warehouse_key",),
    ordering="normalized_offset",
    delta_partition=("partition_date",),
)
