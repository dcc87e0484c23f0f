"""Where a staged line stands: its place in source order, and the position people find it by.

A line is staged with the file it is in (`file_index` in source order), the block of it that one task read
(`block_start` in bytes) and its number in that block (`block_line`, from 0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

RUN_KEY = ("file_index", "block_start")
"""The columns that tell the blocks apart; their order is the order of the source."""
_FILE_SHIFT = 40
"""A file has fewer bytes than this power of two, so that file index, block start and line give one number that rises in
source order."""


def ordinal() -> Column:
    """A number for each line that rises in source order."""
    from pyspark.sql import functions as F

    return F.expr(f"file_index * {1 << _FILE_SHIFT} + block_start + block_line").alias("ordinal")


def first_ordinal(file_index: int, block_start: int) -> int:
    """The `ordinal` of the first line of a block."""
    return (file_index << _FILE_SHIFT) + block_start


def file_index_of(ordinal: int) -> int:
    """The file that an `ordinal` is in."""
    return ordinal >> _FILE_SHIFT


def source_position() -> Column:
    """`<day>/<file>:<line>`, from a line joined with its block's `file_position` and `lines_before`."""
    from pyspark.sql import functions as F

    return F.expr("concat(file_position, ':', lines_before + block_line + 1)").alias("source_position")
