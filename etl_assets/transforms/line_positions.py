"""The position of a staged line: its ordinal in source order, and its readable source position.

A line is staged with its file (`file_index` in source order), the block of the file that one task read
(`block_start` in bytes) and its number in that block (`block_line`, from 0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

RUN_KEY = ("file_index", "block_start")
"""The columns that identify a block; sorted by them, blocks are in source order."""
_FILE_SHIFT = 40
"""A file has fewer bytes than two to this power.

So file index, block start and line give one number that rises in source order.
"""


def ordinal() -> Column:
    """Return a column with a number for each line, which rises in source order."""
    from pyspark.sql import functions as F

    return F.expr(f"file_index * {1 << _FILE_SHIFT} + block_start + block_line").alias("ordinal")


def first_ordinal(file_index: int, block_start: int) -> int:
    """Return the `ordinal` of the first line of a block."""
    return (file_index << _FILE_SHIFT) + block_start


def file_index_of(ordinal: int) -> int:
    """Return the index of the file that contains an `ordinal`."""
    return ordinal >> _FILE_SHIFT


def source_position() -> Column:
    """Return the column `<day>/<file>:<line>` of a line.

    The line is joined with its block's `file_position` and `lines_before`.
    """
    from pyspark.sql import functions as F

    return F.expr("concat(file_position, ':', lines_before + block_line + 1)").alias("source_position")
