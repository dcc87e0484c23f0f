"""The lines of source files: files cut into blocks that can be read apart from each other, and a block's lines.

A line belongs to the block that its first byte is in, so that blocks read by different processes have every line once.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

_COMPRESSED = ".gz"
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The lines of a file that begin at its bytes from `start` to before `end`; without an end all that follow."""

    path: str
    start: int
    end: int | None


def blocks_of(path: str, size: int, most_bytes: int) -> Iterator[Block]:
    """Cut a file of a size in bytes into blocks. A compressed one can be read from its beginning only, and stays whole."""
    if path.endswith(_COMPRESSED):
        yield Block(path=path, start=0, end=None)
        return
    for start in range(0, size, most_bytes):
        yield Block(path=path, start=start, end=min(size, start + most_bytes))


def read_lines(block: Block) -> Iterator[list[bytes]]:
    """The lines of a block, without their line feeds, in lists of about a megabyte.

    Raises:
        OSError, EOFError, zlib.error: the file cannot be read or decompressed.
    """
    with _open(block.path) as file:
        position = _first_line(file, block)
        while block.end is None or position < block.end:
            left = _PIECE_BYTES if block.end is None else block.end - position
            piece = file.read(min(_PIECE_BYTES, left))
            if not piece.endswith(b"\n"):
                piece += file.readline()
            if not piece:
                return
            position += len(piece)
            lines = piece.split(b"\n")
            if not lines[-1]:
                lines.pop()  # nothing comes after the last line feed
            yield lines


def _first_line(file: BinaryIO, block: Block) -> int:
    """Go to the first line that may begin in a block, past what is left of a line of the blocks before.

    That line may be longer than this block: it is neither held nor followed beyond the block's end.
    """
    if not block.start:
        return 0
    file.seek(block.start - 1)
    position = block.start - 1
    while block.end is None or position < block.end:
        piece = file.readline(_PIECE_BYTES)
        position += len(piece)
        if not piece or piece.endswith(b"\n"):
            break
    return position


def _open(path: str) -> BinaryIO:
    if path.endswith(_COMPRESSED):
        return cast("BinaryIO", gzip.open(path))
    return Path(path).open("rb")
