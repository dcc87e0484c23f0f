"""Which pages a batch of a copy reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from etl_assets.sources.postgres_cdc.heap_pages import (
    HeapFile,
    HeapFiles,
    PagePosition,
    PageRange,
    divided,
    next_pages,
)

_SIZES = st.lists(st.integers(0, 50), max_size=5)


def _files(sizes: list[int]) -> HeapFiles:
    files = tuple(HeapFile(name=f"f{number}", pages=pages) for number, pages in enumerate(sizes))
    return HeapFiles(identity="x", files=files, rows_per_page=292)


@given(_SIZES, st.integers(1, 60))
def test_batches_read_every_page_of_every_file_once(sizes, most):
    read: list[tuple[str, int]] = []
    at: PagePosition | None = PagePosition(identity="x")
    while at is not None:
        ranges, after = next_pages(at, _files(sizes), most)
        assert sum(map(len, ranges)) <= most
        assert after != at
        read += [(each.file, page) for each in ranges for page in range(each.begin, each.end)]
        at = after
    assert read == [(f"f{number}", page) for number, pages in enumerate(sizes) for page in range(pages)]


def test_pages_that_a_file_gets_while_it_is_copied_are_left_to_the_log():
    _, after = next_pages(PagePosition(identity="x"), _files([10]), 5)
    assert after is not None
    ranges, last = next_pages(after, _files([1_000]), 500)
    assert ([(each.begin, each.end) for each in ranges], last) == ([(5, 10)], None)


@given(_SIZES, st.integers(1, 8))
def test_parts_have_about_the_same_size_and_every_page_once(sizes, parts):
    ranges = [PageRange(file=f"f{number}", begin=0, end=pages) for number, pages in enumerate(sizes)]
    found = divided(ranges, parts)
    pages = [(each.file, page) for part in found for each in part for page in range(each.begin, each.end)]
    assert pages == [(each.file, page) for each in ranges for page in range(each.end)]
    assert len(found) <= parts
    assert all(0 < sum(map(len, part)) <= -(-sum(sizes) // parts) for part in found)
