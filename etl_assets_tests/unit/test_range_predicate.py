"""Ranges that rows are in: a file is left out only where it cannot have such a row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.delta.read.footers import bounds_in
from etl_assets.delta.read.range_predicate import may_hold
from etl_assets.delta.read.rows import files_with
from etl_assets.delta.table import Table
from etl_assets.orders.steps.audit import _as_text
from etl_assets.steps.changes import read_changes
from etl_assets.steps.step import ReadMode, platform_table
from etl_assets_tests.reference.tables import local_domain
from etl_assets_tests.reference.written_tables import DAY, write_table

OFFSETS = st.integers(0, 12_000)


@pytest.mark.parametrize(
    ("lowest", "highest", "may"),
    [
        ({"stage": "a", "place": 1}, {"stage": "a", "place": 9}, True),
        ({"stage": "a", "place": 6}, {"stage": "a", "place": 9}, False),
        ({"stage": "b", "place": 1}, {"stage": "b", "place": 9}, False),
        ({"stage": "b", "place": 6}, {"stage": "c", "place": 9}, True),
        ({"stage": "a"}, {"stage": "a"}, True),
        ({"stage": "a", "place": None}, {"stage": "a", "place": None}, True),
    ],
)
def test_a_file_is_left_out_if_one_of_its_columns_meets_no_range(lowest, highest, may):
    within = ({"stage": ("a", "a"), "place": (2, 5)}, {"stage": ("c", "c")})
    assert may_hold(within, lowest, highest) is may


def test_files_are_found_by_their_statistics(tmp_path: Path):
    table = Table(name="events", domain=local_domain(tmp_path))
    table.path.mkdir(parents=True)
    for offsets in ([1, 5], [6, 9]):
        write_deltalake(str(table.path), pa.table({"offset": pa.array(offsets, pa.int64())}), mode="append")
    snapshot = table.snapshot()
    assert snapshot is not None
    reached = [len(list(files_with(snapshot, None, ({"offset": (at, at)},)))) for at in (0, 1, 6, 9, 10)]
    assert reached == [0, 1, 1, 1, 0]
    assert len(list(files_with(snapshot, None, ({"unknown": (1, 1)},)))) == 2
    assert list(files_with(snapshot, None, ())) == []


@given(OFFSETS, OFFSETS, OFFSETS)
def test_offsets_as_text_lie_in_the_ranges_of_their_text(one, other, offset):
    low, high = sorted((one, other))
    ranges = _as_text((low, high)) or []
    if low <= offset <= high:
        assert any(first <= str(offset) <= last for first, last in ranges)
    assert all(len(first) == len(last) for first, last in ranges)


def test_the_footers_tell_the_bounds_over_row_groups_and_files(tmp_path: Path):
    for name, values in (("a", ["m", "c", None]), ("b", ["x", "ü", "d"]), ("none", [])):
        pq.write_table(pa.table({"v": pa.array(values, pa.string())}), tmp_path / name, row_group_size=2)
    pq.write_table(pa.table({"v": ["a"]}), tmp_path / "untold", write_statistics=False)
    assert bounds_in([tmp_path / "a", tmp_path / "b", tmp_path / "none"], "v") == ("c", "ü")
    assert bounds_in([tmp_path / "a", tmp_path / "untold"], "v") is None
    assert bounds_in([tmp_path / "a"], "w") is None
    assert bounds_in([tmp_path / "none"], "v") is None
    assert bounds_in([], "v") is None


def test_what_is_read_again_from_the_beginning_may_be_known_under_other_offsets(tmp_path: Path):
    """Of a restored table, or where the source was deleted alone: then keys are compared, all of them."""
    domain = local_domain(tmp_path)
    source, consumer = platform_table("normalized_orders", domain), platform_table("warehouse_rows", domain)
    for batch, offset in enumerate((5, 7)):
        write_table(domain, source.name, [{"offset": offset, "batch_id": batch, "partition_date": DAY}])
    write_table(domain, consumer.name, [], {f"{source.name}/{DAY}": 0})

    def within(mode: ReadMode):
        return read_changes(source, consumer, [DAY], mode).known_within(
            "offset", as_column="normalized_offset"
        )

    assert within(ReadMode.INCREMENTAL) == ({"normalized_offset": (7, 7)},)
    assert within(ReadMode.WHOLE) is None
    for cursor in (9, -1):  # beyond the source's newest version; set back
        write_table(domain, consumer.name, [], {f"{source.name}/{DAY}": cursor})
        assert within(ReadMode.INCREMENTAL) is None
