"""Calls of Arrow's compute functions by name: the members of `pyarrow.compute` have no types."""

from __future__ import annotations

from typing import Any


def call(function: str, *values: Any) -> Any:
    """Return what a compute function makes of arrays and scalars, which may be values of Python."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.call_function(
        function, [pa.scalar(each) if isinstance(each, str | int | bool) else each for each in values]
    )
