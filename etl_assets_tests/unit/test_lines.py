"""Every line of a file is in one block, however the file is cut; a line too long to be held is there by its
beginning.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import tracemalloc
import zlib
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl_assets.contracts.envelope import CutLine
from etl_assets.sources import lines
from etl_assets.sources.lines import Block, blocks_of, read_lines

HELD_BYTES = 1 << 20
BITS = [b"\n", b"\r\n", b"a", b"bc", b"\xff", b" ", codecs.BOM_UTF8]


def lines_in(content: bytes) -> list[bytes]:
    """What stands between line feeds, without the mark at the beginning; after the last one nothing is
    left.
    """
    found = content.split(b"\n")
    if not found[-1]:
        found.pop()
    return [*(line.removeprefix(codecs.BOM_UTF8) for line in found[:1]), *found[1:]]


def read(path: Path, most_bytes: int, held_bytes: int = HELD_BYTES) -> list[bytes | CutLine]:
    blocks = blocks_of(str(path), path.stat().st_size, most_bytes)
    return [line for block in blocks for _, some in read_lines(block, held_bytes) for line in some]


@contextlib.contextmanager
def at_most(held_bytes: int) -> Generator[None]:
    """Refuse that more is held in between."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < held_bytes
    finally:
        tracemalloc.stop()


@given(
    content=st.lists(st.sampled_from([*BITS, b"long" * 4, b" " * 9]), max_size=40).map(b"".join),
    most_bytes=st.integers(1, 50),
    piece_bytes=st.integers(1, 50),
    piece_lines=st.integers(1, 4),
    held_bytes=st.integers(3, 20) | st.just(HELD_BYTES),
    compressed=st.booleans(),
)
@example(  # the line end is read in two pieces
    content=b"x" * 10 + b"\r\n", most_bytes=50, piece_bytes=4, piece_lines=1, held_bytes=7, compressed=False
)
def test_blocks_together_have_every_line_once_and_in_order_too_long_ones_by_their_beginning(
    tmp_path_factory, content, most_bytes, piece_bytes, piece_lines, held_bytes, compressed
):
    path = tmp_path_factory.mktemp("lines") / ("a.jsonl.gz" if compressed else "a.jsonl")
    path.write_bytes(gzip.compress(content, 1) if compressed else content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_PIECE_BYTES", piece_bytes)
        patch.setattr(lines, "_PIECE_LINES", piece_lines)
        found, expected = read(path, most_bytes, held_bytes), lines_in(content)
    assert len(found) == len(expected)
    for line, whole in zip(found, expected, strict=True):
        held = len(line)
        assert held <= held_bytes + piece_bytes
        if isinstance(line, CutLine):
            assert line.start == whole[:held]
            assert held >= held_bytes - len(codecs.BOM_UTF8)
            assert line.size == len(whole.removesuffix(b"\r")) > held_bytes - len(codecs.BOM_UTF8 + b"\r")
        else:
            assert line == whole or (not line and not whole.strip() and len(whole) >= held_bytes - 3)


@pytest.mark.parametrize("end", [b"\n" + b"last\n", b""], ids=["other lines follow", "the file ends in it"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_of_a_line_without_end_a_few_megabytes_are_held(tmp_path, name, end):
    path = tmp_path / name
    size = 40 << 20
    with gzip.open(path, "wb", 1) if name.endswith(".gz") else path.open("wb") as file:
        file.write(b"first\n")
        for _ in range(40):
            file.write(b"x" * (1 << 20))
        file.write(end)
    with at_most(10 << 20):
        first, long, *others = read(path, 8 << 20)
    assert first == b"first"
    assert isinstance(long, CutLine)
    assert (long.size, long.start) == (size, b"x" * len(long))
    assert others == ([b"last"] if end else [])


def test_white_space_without_end_is_an_empty_line(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(codecs.BOM_UTF8 + b" " * (20 << 20) + b"\r\nlast")
    with at_most(10 << 20):
        assert read(path, 8 << 20) == [b"", b"last"]


def test_very_many_very_short_lines_come_in_lists_of_some(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n" * 300_000)
    lists = [some for _, some in read_lines(Block(path=str(path), start=0, end=None), HELD_BYTES)]
    assert sum(map(len, lists)) == 300_000
    assert max(map(len, lists)) < 100_000


def test_what_is_left_of_a_line_of_the_blocks_before_is_not_held(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * (20 << 20) + b"\nlast\n")
    size = path.stat().st_size
    block = Block(path=str(path), start=4 << 20, end=12 << 20)
    with at_most(4 << 20):
        assert list(read_lines(block, HELD_BYTES)) == []
        (last,) = read_lines(Block(path=str(path), start=12 << 20, end=size), HELD_BYTES)
        assert last[1] == [b"last"]


def test_a_compressed_file_is_one_block(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    # Two members one after another are one file, as `cat` makes them.
    path.write_bytes(gzip.compress(b"one\ntw") + gzip.compress(b"o\n"))
    assert len(list(blocks_of(str(path), path.stat().st_size, 1))) == 1
    assert read(path, 1) == [b"one", b"two"]


def test_a_compressed_file_that_is_cut_off_fails(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"line\n" * 1_000)[:-20])
    with pytest.raises((EOFError, OSError, zlib.error)):
        read(path, 1)
