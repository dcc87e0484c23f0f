"""Every line of a file is in one block, however the file is cut."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.sources import lines
from etl_assets.sources.lines import Block, blocks_of, read_lines


def lines_in(content: bytes) -> list[bytes]:
    """What stands between line feeds; after the last one nothing is left."""
    found = content.split(b"\n")
    return found if found[-1] else found[:-1]


def read(path: Path, most_bytes: int) -> list[bytes]:
    blocks = blocks_of(str(path), path.stat().st_size, most_bytes)
    return [line for block in blocks for some in read_lines(block) for line in some]


@given(
    content=st.lists(st.sampled_from([b"\n", b"\r\n", b"a", b"bc", b"\xff", b" "]), max_size=40).map(
        b"".join
    ),
    most_bytes=st.integers(1, 50),
    piece_bytes=st.integers(1, 50),
)
def test_blocks_together_have_every_line_once_and_in_order(
    tmp_path_factory, content, most_bytes, piece_bytes
):
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_PIECE_BYTES", piece_bytes)
        assert read(path, most_bytes) == lines_in(content)


def test_what_is_left_of_a_line_of_the_blocks_before_is_not_held(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * (20 << 20) + b"\nlast\n")
    size = path.stat().st_size
    block = Block(path=str(path), start=4 << 20, end=12 << 20)
    tracemalloc.start()
    try:
        assert list(read_lines(block)) == []
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
        assert list(read_lines(Block(path=str(path), start=12 << 20, end=size))) == [[b"last"]]
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


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
