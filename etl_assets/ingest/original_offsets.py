"""Offsets of events that later lines of their own batch repeat, computed before the batch's rows are written.

A batch commits its exceptions before its rows, and the exception of a repeat names the offset of the accepted
event. The offset follows from the number of rows before that event.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from etl_assets.ingest.located_blocks import LocatedBlock, row_groups
from etl_assets.ingest.stage_lines import Kind

_NAME = "originals.parquet"


def offsets_of(
    originals: np.ndarray,
    blocks: Sequence[LocatedBlock],
    *,
    repeats: np.ndarray,
    staging: Path,
    first_offset: int,
) -> np.ndarray:
    """Return the offsets that some new events of a batch will have.

    Args:
        originals: Ordinals of the events, sorted, each once.
        blocks: All blocks of the batch, in source order.
        repeats: Ordinals of the events that do not become rows, sorted.
        staging: Folder of the staged events.
        first_offset: The batch's first offset.

    Raises:
        RuntimeError: some of the events are not among the new ones.
    """
    offsets = np.full(len(originals), -1, dtype=np.int64)
    new_before = np.cumsum([0, *(block.new for block in blocks)])
    first = np.array([block.first_ordinal for block in blocks])
    next_of = dict(zip(first.tolist(), (first_offset + new_before).tolist(), strict=False))
    wanted = np.unique(np.searchsorted(first, originals, side="right") - 1)
    for group in row_groups(staging, Kind.EVENTS, [blocks[index] for index in wanted.tolist()]):
        lines = group.lines(group.read(["block_line"]).column(0))
        lines = lines.where(~np.isin(lines.ordinals(), _between(repeats, lines.ordinals())))
        for index, block in enumerate(group.blocks):
            rows = lines.where(lines.block == index).ordinals()
            some = slice(*np.searchsorted(originals, [rows[0], rows[-1] + 1])) if len(rows) else slice(0)
            offsets[some] = next_of[block.first_ordinal] + np.searchsorted(rows, originals[some])
            next_of[block.first_ordinal] += len(rows)
    if (offsets < 0).any():
        raise RuntimeError(f"{int((offsets < 0).sum())} events that others repeat are not among the new ones")
    return offsets


def _between(ordinals: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Return the part of sorted `ordinals` between the first and the last of `some`."""
    return ordinals[slice(*np.searchsorted(ordinals, [some[0], some[-1] + 1]))] if len(some) else some


def write_offsets(folder: Path, originals: np.ndarray, offsets: np.ndarray) -> str:
    """Write offsets by ordinal for the workers; return the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = str(folder / _NAME)
    pq.write_table(pa.table({"ordinal": originals, "offset": offsets}), file)
    return file


@lru_cache(maxsize=1)
def read_offsets(file: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted ordinals and their offsets. Cached, so that a process reads the file once per batch."""
    import pyarrow.parquet as pq

    if file is None:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    found = pq.read_table(file)
    return found.column("ordinal").to_numpy(), found.column("offset").to_numpy()
