"""Lines: cut files into blocks that can be read independently, and read the lines of a block.

A line belongs to the block that contains its first byte, so that blocks read by different processes have
every line once. Memory does not depend on the content of a file: of a line that is too long only the
beginning is held.
"""

from __future__ import annotations

import codecs
import gzip
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from etl_assets.contracts.envelope import CutLine

_COMPRESSED = ".gz"
_PIECE_BYTES = 1 << 20
_PIECE_LINES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The lines of a file that begin at its bytes from `start` to before `end`.

    Without an end, all lines from `start`.
    """

    path: str
    start: int
    end: int | None


def is_compressed(path: str) -> bool:
    """Return whether a file is compressed by gzip, as its name says."""
    return path.lower().endswith(_COMPRESSED)


def blocks_of(path: str, size: int, most_bytes: int) -> Iterator[Block]:
    """Cut a file of a given size in bytes into blocks.

    A compressed file can only be read from its beginning, and is a single block.
    """
    if is_compressed(path):
        yield Block(path=path, start=0, end=None)
        return
    for start in range(0, size, most_bytes):
        yield Block(path=path, start=start, end=min(size, start + most_bytes))


def read_lines(block: Block, held_bytes: int) -> Generator[tuple[int, list[bytes | CutLine]]]:
    """Yield the lines of a block, in lists of at most about a megabyte, with the byte at which each list
    begins.

    Line feeds and the file's byte order mark are removed. In a compressed file, bytes are those of its
    content.

    Args:
        block: The block.
        held_bytes: How much of a line is held beyond its megabyte. A longer line is read, but not held: only
            its beginning, of at least this many bytes, is yielded, or an empty line if all of it is white
            space.

    Raises:
        OSError, EOFError, zlib.error: the file cannot be read or decompressed. An `OSError` names the file.
    """
    with named(block.path), _open(block.path) as file:
        position = _first_line(file, block)
        while block.end is None or position < block.end:
            left = _PIECE_BYTES if block.end is None else block.end - position
            piece = file.read(min(_PIECE_BYTES, left))
            if not piece.endswith(b"\n"):
                piece += file.readline(held_bytes)
            if not piece:
                return
            begin, whole = position, piece.endswith(b"\n")
            mark = b"" if position else codecs.BOM_UTF8
            position += len(piece)
            content = piece.removeprefix(mark)
            begin += len(piece) - len(content)
            *found, last = content.split(b"\n")
            lines: list[bytes | CutLine] = [*found]
            if not whole:  # a piece that ends with a line feed has nothing after it
                line, more = _with_the_rest(last, file)
                lines.append(line)
                position += more
            for first in range(0, len(lines), _PIECE_LINES):
                some = lines[first : first + _PIECE_LINES]
                yield begin, some
                begin += sum(map(len, some)) + len(some)


def _with_the_rest(start: bytes, file: BinaryIO) -> tuple[bytes | CutLine, int]:
    """Return a line that has begun, and how many bytes of it followed; at the file's end, none."""
    following, ending, blank = 0, start[-2:], not start.strip()
    while not ending.endswith(b"\n") and (piece := file.readline(_PIECE_BYTES)):
        following += len(piece)
        ending = (ending + piece[-2:])[-2:]
        blank = blank and piece.isspace()
    if not following:
        return start, 0
    if blank:
        return b"", following
    size = len(start) + following - len(ending) + len(ending.removesuffix(b"\n").removesuffix(b"\r"))
    return CutLine(start=start, size=size), following


def _first_line(file: BinaryIO, block: Block) -> int:
    """Seek to the first line that may begin in a block, past the rest of a line of the blocks before.

    That line may be longer than this block. It is neither held nor read beyond the block's end.
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


@contextmanager
def named(path: str) -> Generator[None]:
    """Add the path to errors of the operating system, which names it on opening a file, not on reading it."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = path
        raise


def _open(path: str) -> BinaryIO:
    if is_compressed(path):
        return cast("BinaryIO", gzip.open(path))
    return Path(path).open("rb")
