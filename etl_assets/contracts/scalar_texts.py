"""Texts of scalar values in Arrow, as targets take them.

Belongs here: one text for each value of a column. Does not belong here: quoting, and nested values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def scalar_texts(column: pa.Array) -> pa.Array:
    """Return the text of scalar values: ISO 8601 for times, in UTC; decimals and numbers in digits."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_timestamp(column.type):
        return column.cast(pa.string())
    # Without the zone: Arrow would look for a time zone database, and take ten times as long for each time.
    times = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).cast(pa.timestamp("us"))
    written = pc.call_function(
        "replace_substring", [times.cast(pa.string())], pc.ReplaceSubstringOptions(" ", "T")
    )
    return pc.call_function("binary_join_element_wise", [written, "Z", ""])
