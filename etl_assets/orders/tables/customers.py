"""customers: reference data about customers."""

from __future__ import annotations

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.rules import MaxCharacters, NotEmpty
from etl_assets.contracts.tables.recurring_columns import MAX_ID_CHARACTERS, identifier

CUSTOMERS = TableContract(
    name="customers",
    description=(
        "Reference data that enriches orders, loaded from a file. A customer or region that is missing here"
        " is null in the tables made from it, never a dropped row."
    ),
    columns=(
        identifier("customer_id", "The customer, as events name it."),
        Column(
            "customer_region",
            "STRING",
            "Region the customer belongs to; null if the file has none.",
            nullable=True,
            rules=(NotEmpty(), MaxCharacters(MAX_ID_CHARACTERS)),
        ),
    ),
    merge_key=("customer_id",),
)
