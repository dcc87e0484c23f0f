"""Offsets are dense and in source order, however the rows lie in staged files."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from etl_assets.delta.write.offsets import Run, shifts


def test_runs_are_put_in_the_order_of_their_keys_and_not_of_their_files():
    runs = [Run(file="b", key=(0,), first_row=0, rows=2), Run(file="a", key=(1,), first_row=0, rows=3)]
    assert shifts(runs, 10) == {("b", (0,)): 10, ("a", (1,)): 12}


def test_a_second_run_of_a_file_takes_its_place_in_the_file_off():
    runs = [Run(file="a", key=(5,), first_row=0, rows=2), Run(file="a", key=(1,), first_row=4, rows=3)]
    assert shifts(runs, 0) == {("a", (1,)): -2, ("a", (5,)): 3}


def test_no_rows_need_no_offsets():
    assert shifts([], 7) == {}


@st.composite
def staged(draw):
    """Rows of input blocks, in blocks of their own, laid into files one after another; some rows dropped."""
    blocks = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    order = draw(st.permutations(range(len(blocks))))
    files: dict[str, list[tuple[int, int, bool]]] = {}
    for block in order:
        file = draw(st.sampled_from("xyz"))
        files.setdefault(file, []).extend((block, line, draw(st.booleans())) for line in range(blocks[block]))
    return files


@given(staged(), st.integers(0, 10**12))
def test_offsets_are_dense_from_the_first_one_in_source_order(files, first):
    runs, left = [], {}
    for file, rows in files.items():
        kept = [(row, block, line) for row, (block, line, keep) in enumerate(rows) if keep]
        left[file] = kept
        for block, of_block in groupby(kept, key=lambda item: item[1]):
            members = list(of_block)
            runs.append(Run(file=file, key=(block,), first_row=members[0][0], rows=len(members)))
    shift = shifts(runs, first)
    dealt = sorted(
        (place + shift[file, (block,)], block, line)
        for file, kept in left.items()
        for place, (_, block, line) in enumerate(kept)
    )
    assert [offset for offset, _, _ in dealt] == list(range(first, first + len(dealt)))
    assert [(block, line) for _, block, line in dealt] == sorted((block, line) for _, block, line in dealt)
