"""Some fields of JSON objects as Arrow columns, by Arrow's own reader.

Belongs here: reading them. Does not belong here: which values are plain (`transforms/plain_records.py`), and
what identifies a row (`sources/sql/row_ids.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def json_fields(records: pa.Array, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Return fields of records, one row a record; null where a field is missing.

    Args:
        records: Texts, each an object without line breaks.
        types: Type of each field's values in JSON.

    Raises:
        pa.ArrowInvalid: a text is no object, or a field has a value of another kind.
        pa.ArrowCapacityError: the texts are too large for one array.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.json as pj

    lines = pc.call_function(
        "binary_join_element_wise", [records, pa.scalar("", records.type), pa.scalar("\n", records.type)]
    ).buffers()[2]
    rows = pj.read_json(
        pa.BufferReader(lines),
        read_options=pj.ReadOptions(use_threads=False, block_size=lines.size + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema(types.items()), unexpected_field_behavior="ignore"
        ),
    )
    if rows.num_rows != len(records):
        raise pa.ArrowInvalid("a record has another number of lines than one")
    return rows
