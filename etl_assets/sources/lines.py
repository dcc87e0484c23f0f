"""The lines of source files as Spark reads them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PATTERN_CHARACTERS = frozenset("{}[]*?\\")


def read_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """The lines of files, with file and block; file names are taken as they are, not as patterns.

    Names with characters of a pattern are read apart: beside them, and with patterns switched off, Spark reads every
    other file twice.
    """
    from pyspark.sql import functions as F

    odd = [path for path in paths if not _PATTERN_CHARACTERS.isdisjoint(path)]
    plain = [path for path in paths if _PATTERN_CHARACTERS.isdisjoint(path)]
    reader = spark.read.option("lineSep", "\n")
    frames = [reader.text(plain)] if plain else []
    if odd:
        frames.append(reader.option("__globPaths__", "false").text(odd))
    located = [
        frame.select(
            F.col("value").cast("binary"),
            F.col("_metadata.file_path").alias("file_path"),
            F.col("_metadata.file_block_start").alias("block_start"),
        )
        for frame in frames
    ]
    return reduce(lambda one, other: one.unionByName(other), located)
