"""The comparison of a query's rows with accepted records finds what comparing them one by one does."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl_assets.contracts import canonical_json
from etl_assets.sources.ranges import RangeRead, ReadRange
from etl_assets.sources.sql import row_ids
from etl_assets.sources.sql.comparison import QueryComparison
from etl_assets.sources.sql.row_ids import RowIds, lines_of
from etl_assets.sources.sql.staged import DELETED, IDS, QUERY, ROWS, file_name, staged_files
from etl_assets_tests.reference.query_comparison import Accepted, Compared

DAY = dt.date(2026, 1, 2)
READ = ReadRange(begin={}, end={QUERY: {"load": 2}}, details={"day": DAY.isoformat()}, more=False)


class _Stored:
    """A table's version, of some records."""

    def __init__(self, accepted: list[Accepted], folder: Path) -> None:
        self._accepted, self.folder = accepted, folder

    def snapshot(self, _: int) -> _Stored:
        return self

    def files(self) -> list[str]:
        return ["part"]

    def row_count(self) -> int:
        return len(self._accepted)

    def dataset(self) -> ds.Dataset:
        columns = zip(*self._accepted, strict=True) if self._accepted else ([], [], [])
        types = (pa.int64(), pa.string(), pa.string())
        rows = pa.table(
            [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)],
            names=["offset", "record", "fingerprint"],
        )
        whole = rows.append_column("source", pa.array(["sql"] * len(rows), pa.string()))
        # What was replayed is no record of the query.
        replayed = whole.slice(0, 1).set_column(
            3, "source", pa.array(["replays"] * min(1, len(rows)), pa.string())
        )
        file = self.folder / "stored.parquet"
        pq.write_table(pa.concat_tables([whole, replayed]), file)
        return ds.dataset(file)


def compared(
    accepted: list[Accepted], rows: list[bytes], ids: list[bytes], comparison: QueryComparison
) -> tuple[list[bytes], list[dict[str, Any]]]:
    """Return the rows that are left, and the records that are gone."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        day = folder / DAY.isoformat()
        day.mkdir()
        path, deleted = day / file_name(ROWS, 2), day / file_name(DELETED, 2)
        path.write_bytes(b"".join(line + b"\n" for line in rows))
        (folder / IDS).write_bytes(b"".join(line + b"\n" for line in ids))
        found = RangeRead(read=READ, files=staged_files(READ, (path,)))
        comparison(cast("Any", _Stored(accepted, folder)), 1, found, folder)
        left = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        gone = deleted.read_bytes().split(b"\n")[:-1] if deleted.exists() else []
        return left, [json.loads(line) for line in gone]


def of_order(record: Any) -> str | None:
    return record.get("changed_at")


IDS_OF_ROWS = st.one_of(
    st.integers(-2, 4),
    st.integers(2**63 - 1, 2**64 - 1),
    st.sampled_from(["1", "null", "a,b", "2:a", "", "é", 'q"\\', "\u2028"]),
    st.none(),
    st.sampled_from([1.5, 0.25]),
    st.booleans(),
)
ROWS_DRAWN = st.fixed_dictionaries(
    {"id": IDS_OF_ROWS, "title": st.sampled_from(["x", "y", "1.0,"])},
    optional={"part": IDS_OF_ROWS, "changed_at": st.sampled_from([None, "1", "2"])},
)


def line_of(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode()


@st.composite
def stored(draw: Any) -> list[Accepted]:
    accepted = []
    for offset in draw(st.permutations(range(draw(st.integers(0, 8))))):
        row = draw(ROWS_DRAWN)
        content = canonical_json.canonical(line_of(row))[0]
        record = {**row, "sql.deleted": True} if draw(st.booleans()) else row
        fingerprint = hashlib.sha256(content).hexdigest()
        accepted.append(Accepted(offset, canonical_json.canonical(line_of(record))[0].decode(), fingerprint))
    return accepted


@settings(max_examples=150, deadline=None)
@given(
    accepted=stored(),
    rows=st.lists(ROWS_DRAWN.map(line_of) | st.sampled_from([b'{"id":1,"id":1}', b'{"id":1e3}', b"[1]"])),
    again=st.lists(st.integers(0, 7)),
    id_fields=st.sampled_from([("id",), ("id", "part")]),
    order=st.sampled_from([None, of_order]),
)
def test_rows_are_compared_as_one_by_one(accepted, rows, again, id_fields, order):
    rows += [accepted[index].record.encode() for index in again if index < len(accepted)]
    ids = [line for line in rows if line.startswith(b'{"id"') and b"e3" not in line and b',"id"' not in line]
    comparison = QueryComparison(source="sql", id=id_fields, order=order)
    expected = Compared(accepted, id_fields, order)
    left, gone = compared(accepted, rows, ids, comparison)
    assert left == expected.changed(rows)
    for record in (expected_gone := expected.gone(ids)):
        record.pop("sql.deleted", None)
    assert gone == expected_gone


def test_rows_that_are_as_stored_are_left_out_in_any_piece_of_a_file(monkeypatch):
    monkeypatch.setattr(row_ids, "_BYTES_AT_ONCE", 30)
    rows = [b'{"id":%d,"title":"film %d"}' % (n, n) for n in range(20)]
    accepted = [Accepted(n, line.decode(), hashlib.sha256(line).hexdigest()) for n, line in enumerate(rows)]
    changed = [b'{"id":3,"title":"Alien"}' if n == 3 else line for n, line in enumerate(rows)]
    comparison = QueryComparison(source="sql", id=("id",))
    left, gone = compared(accepted, changed[:15], [b'{"id":%d}' % n for n in range(18)], comparison)
    assert left == [b'{"id":3,"title":"Alien"}']
    assert [record["id"] for record in gone] == [18, 19]


def test_of_an_id_that_stands_twice_no_row_is_left_out():
    # Without the second row, which is as stored, the first one would be the last record.
    content = b'{"id":1,"title":"Alien"}'
    accepted = [Accepted(0, content.decode(), hashlib.sha256(content).hexdigest())]
    comparison = QueryComparison(source="sql", id=("id",))
    for rows in ([b'{"id":1,"title":"Brazil"}', content], [content, content]):
        assert compared(accepted, rows, [b'{"id":1}'], comparison) == (rows, [])


def test_a_number_has_one_id_however_it_is_written():
    # 1.0 was accepted as 1: the row is neither changed nor gone.
    content = b'{"id":1}'
    accepted = [Accepted(0, content.decode(), hashlib.sha256(content).hexdigest())]
    comparison = QueryComparison(source="sql", id=("id",))
    assert compared(accepted, [b'{"id":1.0}'], [b'{"id":1.0}'], comparison) == ([], [])


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_the_lines_of_a_file_are_those_between_its_breaks(tmp_path, monkeypatch, end):
    monkeypatch.setattr(row_ids, "_BYTES_AT_ONCE", 4)
    lines = [b"a", b"", b"longer than a piece", b"\xff", b"last"]
    (tmp_path / "file").write_bytes(b"\n".join(lines) + end)
    assert [line for some in lines_of(tmp_path / "file") for line in some.to_pylist()] == lines


def test_two_ids_are_one_only_if_their_values_are():
    records = [
        {"a": "1", "b": None},
        {"a": 1, "b": None},
        {"a": "1,2:b", "b": "c"},
        {"a": "1", "b": "b,1:c"},
        {"a": "null"},
    ]
    ids, _ = RowIds(names=("a", "b")).of(pa.array([json.dumps(each) for each in records]))
    assert len(set(ids.to_pylist())) == len(records)


def of_session(load: int, session: str) -> ReadRange:
    return replace(READ, end={QUERY: {"load": load}}, details={"day": DAY.isoformat(), "session": session})


@pytest.mark.parametrize(
    ("load", "session", "version", "is_compared"),
    [(2, "one", 1, False), (2, "one", 2, True), (2, "two", 1, True), (3, "one", 1, True), (2, "", 1, True)],
)
def test_a_load_of_one_snapshot_that_began_with_an_empty_table_has_new_rows_only(
    tmp_path, load, session, version, is_compared
):
    comparison = QueryComparison(source="sql", id=("id",))
    first = RangeRead(read=of_session(2, "one" if session else ""), files=())
    comparison(cast("Any", _Empty()), 0, first, tmp_path)
    path = tmp_path / DAY.isoformat() / file_name(ROWS, load)
    path.parent.mkdir()
    line = b'{"id":1}'
    path.write_bytes(line + b"\n")
    accepted = [Accepted(0, line.decode(), hashlib.sha256(line).hexdigest())]
    read = of_session(load, session)
    found = RangeRead(read=read, files=staged_files(read, (path,)))
    left = comparison(cast("Any", _Stored(accepted, tmp_path)), version, found, tmp_path)
    assert bool(left.files) is not is_compared


class _Empty:
    """A table without records."""

    def snapshot(self, _: int) -> None:
        return None
