"""Which of two rows of a key is newer, by columns of Arrow.

Of equal places in the first column the next one decides, and null is before everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.arrow_calls import call

if TYPE_CHECKING:
    import pyarrow as pa

Place = Mapping[str, Any]
"""The values of the columns of an order."""


def is_newer(mine: Sequence[Any], theirs: Sequence[Any], *, or_same: bool = False) -> pa.Array:
    """Return for each pair whether the first row is newer.

    Args:
        mine: The columns of the order of the first rows, at least one.
        theirs: Those of the second rows.
        or_same: Whether a row of the same place counts as newer.
    """
    import pyarrow as pa

    found: Any = pa.repeat(pa.scalar(or_same), len(mine[0]))
    for one, other in reversed(list(zip(mine, theirs, strict=True))):
        is_first = call("and", call("is_null", other), call("is_valid", one))
        is_higher = call("or", is_first, call("coalesce", call("greater", one, other), False))
        are_null = call("and", call("is_null", other), call("is_null", one))
        is_same = call("or", are_null, call("coalesce", call("equal", one, other), False))
        found = call("or", is_higher, call("and", is_same, found))
    return found


def is_older_than(rows: pa.Table, place: Place) -> pa.Array:
    """Return for each row whether it is before a place."""
    import pyarrow as pa

    mine = [rows.column(name) for name in place]
    types = {name: rows.schema.field(name).type for name in place}
    theirs = [pa.repeat(pa.scalar(value, types[name]), rows.num_rows) for name, value in place.items()]
    return is_newer(theirs, mine)


def newest_place(rows: pa.Table, order: Sequence[str]) -> Place | None:
    """Return the last place of some rows without nulls there; None if there are no rows."""
    places = zip(*(rows.column(name).to_pylist() for name in order), strict=True)
    found = max(places, default=None)
    return None if found is None else dict(zip(order, found, strict=True))
