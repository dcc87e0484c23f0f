"""Formats: what a file has is read whatever its size and quotes, and what cannot be read spoils nothing
else.
"""

from __future__ import annotations

import base64
import codecs
import csv
import datetime as dt
import gzip
import io
import itertools
import time
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl_assets.contracts.envelope import BadRecord, CutLine
from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.errors import SourceUnreadable
from etl_assets.sources import formats, lines
from etl_assets.sources.csv_rows import rows_of
from etl_assets.sources.formats import Csv, JsonLines, Parquet
from etl_assets.sources.lines import Block

HELD_BYTES = 1 << 20


def read(format_, path: Path, held_bytes: int = HELD_BYTES) -> list[tuple[int, Any]]:
    """The records of a file with their positions, without places that have none."""
    found = []
    for block in format_.blocks(str(path), path.stat().st_size, 64):
        for first, some in format_.read(block, held_bytes):
            found += zip(format_.positions(first, some), some, strict=False)
    return [(position, record) for position, record in found if record != b""]


def csv_file(tmp_path: Path, content: str | bytes, name: str = "a.csv") -> Path:
    raw = content.encode() if isinstance(content, str) else content
    path = tmp_path / name
    path.write_bytes(gzip.compress(raw, 1) if name.endswith(".gz") else raw)
    return path


def rows(tmp_path: Path, content: str | bytes, *, held_bytes: int = HELD_BYTES, **options) -> list[Any]:
    """The records of a CSV file; of one that is none, the line that it keeps."""
    found = read(Csv(**options), csv_file(tmp_path, content), held_bytes)
    return [record.start if isinstance(record, BadRecord) else record for _, record in found]


# CSV


values = st.text(st.sampled_from('ab,;"\n\r\t é\U0001f600'), max_size=6)


@given(
    table=st.integers(1, 4).flatmap(
        lambda width: st.lists(st.lists(values, min_size=width, max_size=width), max_size=8)
    ),
    delimiter=st.sampled_from(",;\t|"),
    line_end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    mark=st.booleans(),
    compressed=st.booleans(),
    last_line_ends=st.booleans(),
    piece_bytes=st.integers(1, 30),
    at_once=st.integers(1, 3),
)
@example(
    table=[["a\r\n\r", '"\n,"']],
    delimiter=",",
    line_end="\r\n",
    quoting=csv.QUOTE_MINIMAL,
    mark=True,
    compressed=True,
    last_line_ends=False,
    piece_bytes=1,
    at_once=1,
)
def test_csv_is_read_as_pythons_own_reader_does_and_positions_are_lines(
    tmp_path_factory,
    table,
    delimiter,
    line_end,
    quoting,
    mark,
    compressed,
    last_line_ends,
    piece_bytes,
    at_once,
):
    names = [f"c{number}" for number in range(len(table[0]) if table else 1)]
    if any("\r" in value for row in table for value in row):
        quoting = (
            csv.QUOTE_ALL
        )  # the writer of Python 3.11 does not quote these where lines end with a line feed
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=line_end, quoting=quoting)
    writer.writerow(names)
    starts = []
    for row in table:
        starts.append(text.getvalue().count("\n"))
        writer.writerow(row)
    content = text.getvalue() if last_line_ends else text.getvalue().removesuffix(line_end)
    raw = (codecs.BOM_UTF8 if mark else b"") + content.encode()
    path = csv_file(tmp_path_factory.mktemp("csv"), raw, "a.csv.gz" if compressed else "a.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_PIECE_BYTES", piece_bytes)
        patch.setattr(formats, "_RECORDS_AT_ONCE", at_once)
        found = read(Csv(delimiter=delimiter), path)
    _, *by_python = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter)
    assert by_python == table
    assert found == [
        (start, dict(zip(names, [value or None for value in row], strict=True)))
        for start, row in zip(starts, table, strict=True)
        # a line of white space is no record
        if len(row) > 1
        or quoting == csv.QUOTE_ALL
        or row[0].strip()
        or not row[0]
        or {"\n", delimiter} & {*row[0]}
    ]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('2,"open', DeadLetterReason.MALFORMED_CSV),
        ('2,"a"b', DeadLetterReason.MALFORMED_CSV),
        ('2,"a" ', DeadLetterReason.MALFORMED_CSV),
        ("2", DeadLetterReason.MALFORMED_CSV),
        ("2,b,c", DeadLetterReason.MALFORMED_CSV),
        ("2,a\rb", DeadLetterReason.MALFORMED_CSV),
        (b"2,\xff", DeadLetterReason.INVALID_UTF8),
        (b'2,"\xff"', DeadLetterReason.INVALID_UTF8),
    ],
)
@pytest.mark.parametrize("after", ["3,c", '3,"c"', '"3",c\n4,"d"\n5,"e"'])
def test_a_bad_row_spoils_only_itself(tmp_path, bad, reason, after):
    raw = bad if isinstance(bad, bytes) else bad.encode()
    path = csv_file(tmp_path, b"n,t\n1,a\n" + raw + b"\n" + after.encode() + b"\n")
    (_, first), (position, wrong), *others = read(Csv(), path)
    assert first == {"n": "1", "t": "a"}
    assert isinstance(wrong, BadRecord)
    assert (position, wrong.reason, wrong.start) == (2, reason, raw)
    assert [(place, list(record.values())) for place, record in others] == [
        (3 + number, next(csv.reader([line]))) for number, line in enumerate(after.split("\n"))
    ]


def test_quotes_within_a_value_that_is_not_quoted_are_characters(tmp_path):
    assert rows(tmp_path, 'n,t\n5" pipe,6"\n"a",b"c"\n') == [
        {"n": '5" pipe', "t": '6"'},
        {"n": "a", "t": 'b"c"'},
    ]


def test_what_may_be_the_end_of_a_wrong_row_is_no_record(tmp_path):
    content = 'n,t\n1,"multi\nline"x,2\n3,c\n'
    assert rows(tmp_path, content) == [b'1,"multi', b'line"x,2', {"n": "3", "t": "c"}]


def test_a_row_of_nothing_but_tabs_has_values_that_are_null(tmp_path):
    assert rows(tmp_path, "n\tt\n\t\n \n", delimiter="\t") == [{"n": None, "t": None}]
    assert rows(tmp_path, "n,t\n,\n\n  \n") == [{"n": None, "t": None}]


def test_the_text_that_stands_for_no_value_is_null_and_the_empty_text_is_then_a_value(tmp_path):
    assert rows(tmp_path, "n,t\nNULL,\n", null_value="NULL") == [{"n": None, "t": ""}]


@pytest.mark.parametrize(
    "content", ["", codecs.BOM_UTF8, "\n\r\n", "n,t", "n,t\n", '"n","t"\r\n', "\n\nn,t\n"]
)
def test_a_file_without_rows_has_no_records(tmp_path, content):
    assert rows(tmp_path, content) == []


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("n,,t", "has no name for column 2"),
        ("n, ,t", "has no name for column 2"),
        ("n,t,n", "names 'n' twice"),
        ('n,"t', "a quote is not closed"),
        ('n,"t"x', "cannot be read"),
        (b"n,\xff", "byte 3 is not UTF-8"),
        ("n," + "t" * 3_000_000, "is too long"),
        ("n,t\rrow,a", "carriage return"),
    ],
)
def test_a_header_that_is_none_is_an_error_that_names_file_and_fault(tmp_path, header, why):
    raw = header if isinstance(header, bytes) else header.encode()
    path = csv_file(tmp_path, raw + b"\n1,2\n")
    with pytest.raises(SourceUnreadable, match=why) as refused:
        read(Csv(), path)
    assert refused.value.file == str(path)
    assert repr(str(path)) in str(refused.value)


def test_a_header_of_very_many_columns_is_looked_through_once(tmp_path):
    names = ",".join(f"c{number}" for number in range(100_000))
    started = time.process_time()
    assert rows(tmp_path, f"{names}\n1\n") == [b"1"]
    assert time.process_time() - started < 10


def test_rows_may_be_longer_than_the_limit_that_another_library_set(tmp_path):
    before = csv.field_size_limit(100)
    try:
        content = f'n,t\n1,"{"x" * 5_000}\n"\n2,"{"y" * 50_000}"\n'
        found = read(Csv(), csv_file(tmp_path, content))
        format_ = Csv().read(Block(path=str(tmp_path / "a.csv"), start=0, end=None), HELD_BYTES)
        csv.field_size_limit(100)
        assert len(next(format_)[1]) == 4
    finally:
        csv.field_size_limit(before)
    assert [len(record["t"]) for _, record in found] == [5_001, 50_000]


def test_a_row_that_is_too_long_is_known_by_its_beginning(tmp_path):
    content = b'n,t\n1,"' + b"x\n" * 3_000 + b'"\n2,' + b"y" * (2 << 20) + b"\n3,c\n"
    first, *_, long, last = rows(tmp_path, content, held_bytes=5_000)
    assert first == b'1,"x', "a quoted value of more bytes than are held is not closed"
    assert isinstance(long, CutLine)
    assert long.size == (2 << 20) + 2
    assert last == {"n": "3", "t": "c"}


def test_of_a_row_with_an_open_quote_no_more_is_held_than_a_row_may_have(tmp_path):
    taken = 0

    def source():
        nonlocal taken
        for line in [b'1,"open', *[b"2,row"] * 100_000]:
            taken += 1
            yield line

    found = rows_of(source(), 6_000, b",")
    first = next(found)
    assert isinstance(first.content, BadRecord)
    assert taken <= 1_001
    assert sum(row.content == b"2,row" for row in found) == 100_000


@pytest.mark.parametrize("line", ['{},"open,x', '5",x{},"open', '{},"",x"'])
def test_a_quote_on_every_line_costs_no_more_than_a_few_looks_at_each(monkeypatch, tmp_path, line):
    from etl_assets.sources import csv_rows

    looked = []
    quotes = csv_rows._quotes
    monkeypatch.setattr(
        csv_rows, "_quotes", lambda text, *more, **by: looked.append(len(text)) or quotes(text, *more, **by)
    )
    content = "a,b,c\n" + "".join(line.format(number) + "\n" for number in range(10_000))
    found = rows(tmp_path, content)
    assert len(found) == 10_000
    assert sum(looked) <= 3 * len(content)


def test_lists_of_long_rows_are_short(tmp_path):
    content = "n\n" + ("x" * 100_000 + "\n") * 200
    block = Block(path=str(csv_file(tmp_path, content)), start=0, end=None)
    assert max(len(some) for _, some in Csv().read(block, HELD_BYTES)) < 50


# JSON Lines


@given(
    found=st.lists(st.sampled_from(["", " ", '{"a":1}', '{"b": "é"}', "x" * 30, "{}\r"]), max_size=12),
    mark=st.booleans(),
    most_bytes=st.integers(1, 40),
    piece_bytes=st.integers(1, 40),
    piece_lines=st.integers(1, 4),
    compressed=st.booleans(),
)
def test_the_position_of_a_line_is_its_first_byte_however_the_file_is_cut(
    tmp_path_factory, found, mark, most_bytes, piece_bytes, piece_lines, compressed
):
    content = (codecs.BOM_UTF8 if mark else b"") + "\n".join(found).encode()
    path = tmp_path_factory.mktemp("lines") / ("a.jsonl.gz" if compressed else "a.jsonl")
    path.write_bytes(gzip.compress(content, 1) if compressed else content)
    placed = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_PIECE_BYTES", piece_bytes)
        patch.setattr(lines, "_PIECE_LINES", piece_lines)
        for block in JsonLines().blocks(str(path), path.stat().st_size, most_bytes):
            for first, some in JsonLines().read(block, 10):
                placed += zip(JsonLines().positions(first, some), some, strict=False)
    begins = [0, *itertools.accumulate(len(line.encode()) + 1 for line in found)]
    shift = 3 if mark else 0
    wanted = [begin + shift for begin, line in zip(begins, found, strict=False)]
    wanted = [place for place, line in zip(wanted, found, strict=False) if line]
    assert [place for place, line in placed if line] == wanted
    for place, line in placed:
        start = line.start if isinstance(line, CutLine) else line
        assert content[place:].startswith(start) or not start


# Parquet


def parquet(tmp_path: Path, table: pa.Table, **options) -> Path:
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, **options)
    return path


def of_type(tmp_path: Path, values: list[Any], type_: pa.DataType) -> list[Any]:
    path = parquet(tmp_path, pa.table({"a": pa.array(values, type_)}))
    return [record["a"] for _, record in read(Parquet(), path)]


UTC = dt.UTC
AT = dt.datetime(2026, 1, 5, 12, 0, 0, 250_000, UTC)
NOON = AT.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (pa.bool_(), True, True),
        (pa.int8(), -1, -1),
        (pa.uint64(), 2**64 - 1, 2**64 - 1),
        (pa.float64(), 0.1, Decimal("0.1")),
        (pa.float32(), 0.1, Decimal("0.1")),
        (pa.float16(), np.float16(0.1), Decimal("0.1")),
        (pa.decimal128(20, 2), Decimal("12345678901234567.80"), Decimal("12345678901234567.80")),
        (pa.decimal256(60, 2), Decimal("-0.50"), Decimal("-0.50")),
        (pa.string(), "é", "é"),
        (pa.large_string(), "é", "é"),
        (pa.binary(), b"\xff\x00", base64.b64encode(b"\xff\x00").decode()),
        (pa.binary(2), b"\xff\x00", base64.b64encode(b"\xff\x00").decode()),
        (pa.date32(), dt.date(2026, 1, 5), "2026-01-05"),
        (pa.date64(), dt.date(2026, 1, 5), "2026-01-05"),
        (pa.time32("ms"), dt.time(1, 2, 3, 4_000), "01:02:03.004"),
        (pa.time64("us"), dt.time(1, 2, 3), "01:02:03"),
        (pa.time64("ns"), 1_000_000_001, "00:00:01.000000001"),
        (pa.timestamp("s"), NOON.replace(microsecond=0), "2026-01-05T12:00:00"),
        (pa.timestamp("ms"), NOON, "2026-01-05T12:00:00.25"),
        (pa.timestamp("us"), NOON, "2026-01-05T12:00:00.25"),
        (pa.timestamp("ns"), 1, "1970-01-01T00:00:00.000000001"),
        (pa.timestamp("us", "UTC"), AT, "2026-01-05T12:00:00.25Z"),
        (pa.timestamp("ns", "UTC"), -1, "1969-12-31T23:59:59.999999999Z"),
        (pa.timestamp("us", "Europe/Berlin"), AT, "2026-01-05T12:00:00.25Z"),
        (pa.timestamp("ms"), 300_000_000_000_000, "11476-08-15T05:20:00"),
        (pa.duration("us"), dt.timedelta(days=-1, microseconds=5), "-PT86399.999995S"),
        (pa.list_(pa.int64()), [1, None], [1, None]),
        (pa.large_list(pa.timestamp("us")), [NOON], ["2026-01-05T12:00:00.25"]),
        (pa.list_(pa.binary(), 1), [b"a"], ["YQ=="]),
        (pa.struct({"x": pa.float64(), "y": pa.list_(pa.date32())}), {"x": 1.5, "y": []},
        {"x": Decimal("1.5"), "y": []}),
        (pa.map_(pa.string(), pa.float32()), [("k", 0.1)], {"k": Decimal("0.1")}),
        (pa.map_(pa.int64(), pa.string()), [(1, "a")], {"1": "a"}),
        (pa.map_(pa.string(), pa.int64()), [("k", 1), ("k", 2)], [{"key": "k", "value": 1}, {"key": "k",
        "value": 2}]),
        (pa.dictionary(pa.int32(), pa.string()), "a", "a"),
        (pa.uuid(), uuid.UUID(int=1).bytes, str(uuid.UUID(int=1))),
        (pa.null(), None, None),
    ],
    ids=str,
)  # fmt: skip
def test_values_of_every_type_are_read_and_nulls_among_them(tmp_path, type_, value, expected):
    wanted = [expected, None, expected]
    assert of_type(tmp_path, [value, None, value], type_) == wanted
    nested = pa.list_(pa.struct({"deep": type_}))
    if not isinstance(type_, pa.BaseExtensionType):
        found = of_type(tmp_path, [[{"deep": value}, None], None, [], [{"deep": None}]], nested)
        assert found == [[{"deep": expected}, None], None, [], [{"deep": None}]]


def test_numbers_that_are_none_are_read_as_such(tmp_path):
    found = of_type(tmp_path, [float("nan"), float("inf"), float("-inf"), -0.0], pa.float64())
    assert [str(value) for value in found] == ["NaN", "Infinity", "-Infinity", "-0.0"]


def test_a_text_that_is_not_utf_8_does_not_keep_the_others_from_being_read(tmp_path):
    wrong = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")]
    )
    path = parquet(tmp_path, pa.table({"a": wrong}))
    assert [record["a"] for _, record in read(Parquet(), path)] == ["a", "\udcff"]


def test_positions_of_parquet_are_rows_across_row_groups_and_lists(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "_RECORDS_AT_ONCE", 7)
    path = parquet(tmp_path, pa.table({"a": range(50)}), row_group_size=9)
    assert read(Parquet(), path) == [(number, {"a": number}) for number in range(50)]


def test_lists_of_long_rows_of_parquet_are_short(tmp_path):
    texts = [f"{number:06}" * 20_000 for number in range(150)]
    path = parquet(tmp_path, pa.table({"a": texts}), use_dictionary=False)
    block = Block(path=str(path), start=0, end=None)
    assert max(len(some) for _, some in Parquet().read(block, HELD_BYTES)) < 50


def test_parquet_without_rows_or_columns_is_read(tmp_path):
    assert read(Parquet(), parquet(tmp_path, pa.table({"a": pa.array([], pa.int64())}))) == []


@pytest.mark.parametrize("cut", [0, 3, 100, -5])
def test_a_parquet_file_that_is_cut_off_is_named(tmp_path, cut):
    path = parquet(tmp_path, pa.table({"a": range(1_000)}))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(SourceUnreadable, match="is not a whole Parquet file") as refused:
        read(Parquet(), path)
    assert refused.value.file == str(path)


@pytest.mark.parametrize("compression", ["snappy", "gzip", "zstd"])
def test_a_parquet_file_that_is_damaged_inside_is_named(tmp_path, compression):
    path = parquet(
        tmp_path, pa.table({"a": [f"text {number}" for number in range(5_000)]}), compression=compression
    )
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = b"\xff" * (len(content) // 2 - 4)
    path.write_bytes(content)
    with pytest.raises(SourceUnreadable, match="is not a whole Parquet file"):
        read(Parquet(), path)


def test_a_parquet_file_compressed_by_gzip_is_named(tmp_path):
    path = parquet(tmp_path, pa.table({"a": [1]}))
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(SourceUnreadable, match="is not a whole Parquet file"):
        read(Parquet(), path)


def test_two_columns_or_fields_of_one_name_are_an_error(tmp_path):
    one = pa.array([1])
    for table in (
        pa.Table.from_arrays([one, one], names=["a", "a"]),
        pa.table({"s": pa.StructArray.from_arrays([one, one], names=["a", "a"])}),
    ):
        with pytest.raises(SourceUnreadable, match="names 'a' twice"):
            read(Parquet(), parquet(tmp_path, table))


def test_an_error_of_the_operating_system_stays_one_and_names_the_file(tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        list(Parquet().read(Block(path=str(tmp_path / "a.parquet"), start=0, end=None), 1))
    assert missing.value.filename == str(tmp_path / "a.parquet")
