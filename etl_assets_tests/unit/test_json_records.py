"""Records of any fields: their ids, their fingerprints, and what becomes of those that are none."""

from __future__ import annotations

import codecs
import datetime as dt
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl_assets.contracts import canonical_json
from etl_assets.contracts.envelope import AnnotatedRecord, BadRecord, CutLine
from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.ingest import stage_lines
from etl_assets.ingest.json_records import JsonRecords, ValidatedRecord
from etl_assets.ingest.stage_lines import _stage, _tasks
from etl_assets.sources import lines
from etl_assets.sources.formats import Csv, JsonLines
from etl_assets.sources.landing import REPLAYS
from etl_assets.sources.source_files import InputFile, SourceFile

DAY = dt.date(2026, 1, 5)


def input_file(source: str = "files", name: str = "a.jsonl", **more: Any) -> InputFile:
    file = SourceFile(day=DAY, source=source, name=name, size=more.pop("size", 0), mtime_ns=0)
    return InputFile(file=file, path=more.pop("path", ""), identity=more.pop("identity", name), **more)


def validated(
    record: Any, *ids: str, position: int = 0, file: InputFile | None = None, most: int = 10_000
) -> ValidatedRecord:
    records = JsonRecords(id_fields=ids, max_record_bytes=most)
    return records.validator(file or input_file())(record, position)


@pytest.mark.parametrize(
    ("record", "fields", "expected"),
    [
        (b'{"a":"x"}', ["a"], "x"),
        (b'{"a":7}', ["a"], "7"),
        (b'{"a":-7.50}', ["a"], "-7.5"),
        (b'{"a":1.5}', ["a"], "1.5"),
        (b'{"a":0.00005}', ["a"], "0.00005"),
        (b'{ "a":0.000050}', ["a"], "0.00005"),
        (b'{"a":123456789012345678901234567890}', ["a"], "123456789012345678901234567890"),
        (b'{"a":true}', ["a"], "true"),
        (b'{"a":"x","b":2}', ["b", "a"], '[2,"x"]'),
        (b'{"a":1.5,"b":2.50}', ["a", "b"], "[1.5,2.5]"),
        ({"a": "x", "b": None}, ["a"], "x"),
        ({"a": Decimal("1.50")}, ["a"], "1.5"),
    ],
)  # fmt: skip
def test_an_id_is_the_values_of_its_fields(record, fields, expected):
    assert validated(record, *fields).record_id == expected


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b'{"b":1}', DeadLetterReason.MISSING_FIELD),
        (b'{"a":null}', DeadLetterReason.MISSING_FIELD),
        (b'{"a":""}', DeadLetterReason.MISSING_FIELD),
        (b'{"a":[1]}', DeadLetterReason.WRONG_TYPE),
        (b'{"a":{"b":1}}', DeadLetterReason.WRONG_TYPE),
        (b"[1]", DeadLetterReason.NOT_AN_OBJECT),
        (b"7", DeadLetterReason.NOT_AN_OBJECT),
        (b"{", DeadLetterReason.MALFORMED_JSON),
        (b'{"a":NaN}', DeadLetterReason.MALFORMED_JSON),
        (b'{"a":1,"a":2}', DeadLetterReason.DUPLICATE_KEY),
        (b'{"a":"\xff"}', DeadLetterReason.INVALID_UTF8),
        (b'{"a":"\\ud800"}', DeadLetterReason.MALFORMED_JSON),
        (b'{"a":1e400}', DeadLetterReason.UNSAFE_NUMBER),
        ({"a": None}, DeadLetterReason.MISSING_FIELD),
        ({"a": "x", "b": Decimal("NaN")}, DeadLetterReason.MALFORMED_JSON),
        ({"a": "x", "b": Decimal("-Infinity")}, DeadLetterReason.MALFORMED_JSON),
        ({"a": "x", "b": Decimal("1E+300")}, DeadLetterReason.UNSAFE_NUMBER),
        ({"a": "x", "b": "\udcff"}, DeadLetterReason.INVALID_UTF8),
    ],
)  # fmt: skip
def test_what_has_no_id_or_no_canonical_form_is_rejected_and_kept(record, reason):
    found = validated(record, "a")
    assert (found.reason, found.record_id, found.content) == (reason.value, None, None)
    assert found.record
    if isinstance(record, bytes) and found.record_encoding == "utf-8":
        assert found.record == record.decode()


def test_a_rejected_record_of_values_is_kept_with_its_numbers_as_numbers():
    assert validated({"n": Decimal("1.50"), "a": None}, "a").record == '{"a":null,"n":1.5}'


def test_a_long_id_is_stood_for_by_its_hash_and_differs_from_others():
    found = [validated(json.dumps({"a": "x" * size}).encode(), "a").record_id for size in (512, 513, 514)]
    assert [len(each or "") for each in found] == [512, 64, 64]
    assert len(set(found)) == 3


def test_without_id_fields_the_file_the_place_and_the_content_make_the_id():
    first = validated(b'{"a":1}')
    assert validated(b'{ "a" : 1.0 }').record_id == first.record_id
    others = [
        validated(b'{"a":2}'),
        validated(b'{"a":1}', position=1),
        validated(b'{"a":1}', file=input_file(name="b.jsonl")),
        validated(b'{"a":1}', file=input_file(source="landing")),
    ]
    assert len({first.record_id, *(each.record_id for each in others)}) == 5


@pytest.mark.parametrize("ids", [(), ("a",)])
def test_each_attempt_to_replay_a_dead_letter_has_an_id_of_its_own(ids):
    letter = "0123456789abcdef" * 4
    files = [
        input_file(),
        *(
            input_file(source=REPLAYS, name=name, identity=f"2026-01-05/{name}")
            for name in (f"{letter}.1.jsonl", f"{letter}.2.jsonl", f"{letter[::-1]}.1.jsonl")
        ),
    ]
    found = [validated(b'{"a":"x"}', *ids, file=file) for file in files]
    assert len({each.record_id for each in found}) == 4
    assert len({each.fingerprint for each in found}) == 1


@given(
    st.dictionaries(
        st.text("ab\u00e9\U0001f600", max_size=3),
        st.integers(-(10**20), 10**20) | st.text(max_size=3) | st.none() | st.booleans(),
        max_size=4,
    ),
    st.randoms(),
    st.booleans(),
)
def test_a_fingerprint_does_not_depend_on_the_order_of_keys_nor_on_the_spelling(value, random, spaced):
    keys = list(value)
    random.shuffle(keys)
    shuffled = {key: value[key] for key in keys}
    one = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    other = json.dumps(shuffled, indent=0 if spaced else None).replace("\n", " ")
    first, second = (validated(each.encode("utf-8")) for each in (one, other))
    assert first.reason is None
    assert (first.fingerprint, first.content) == (second.fingerprint, second.content)


@pytest.mark.parametrize("spelling", ["1.10", "1.1", "1.100"])
def test_a_number_has_one_fingerprint_however_it_is_spelled(spelling):
    assert validated(f'{{"a":{spelling}}}'.encode()).fingerprint == validated(b'{"a":1.1}').fingerprint


def test_a_record_with_added_fields_has_its_numbers_without_exponents():
    record = AnnotatedRecord(b'{"a":0.00001}')
    record.added = {"kafka.key": "k"}
    assert validated(record).content == '{"a":0.00001,"kafka.key":"k"}'


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
        st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
        max_size=5,
    )
)
def test_values_of_csv_have_the_content_that_the_same_json_has(values):
    fast = validated(values)
    slow, _ = canonical_json.parse(canonical_json.write(values))
    assert fast.content == canonical_json.write(slow).decode()
    assert fast == validated(json.dumps(values).encode())


@pytest.mark.parametrize(
    ("record", "size"),
    [
        (b'{"a":"' + b"x" * 2_000 + b'"}', 2_008),
        (b'{"a":1' + b" " * 2_000 + b"}", 2_007),
        ({"a": "x" * 2_000}, 2_008),
        (CutLine(start=b"x" * 9_000, size=1 << 30), 1 << 30),
    ],
)
def test_a_record_that_is_too_large_says_its_size_and_keeps_its_beginning(record, size):
    found = validated(record, most=1_024)
    assert found.reason == DeadLetterReason.RECORD_TOO_LARGE.value
    assert (found.error or "").startswith(f"the record has {size:,} bytes, at most 1,024 are taken")
    assert len(found.record or "") == min(size, 4_096)


def test_a_record_that_is_none_keeps_its_reason():
    bad = BadRecord(start=b"1,\xff", reason=DeadLetterReason.INVALID_UTF8, error="byte 3 is not UTF-8")
    found = validated(bad)
    assert (found.reason, found.error, found.record_encoding) == (
        "InvalidUtf8",
        "byte 3 is not UTF-8",
        "base64",
    )


def ids_of(path: Path, format_: Any, folder: Path, records: JsonRecords) -> list[str]:
    import pyarrow.parquet as pq

    folder.mkdir()
    file = input_file(path=str(path), size=path.stat().st_size, identity="a", format=format_)
    found: list[tuple[int, int, str]] = []
    for task in _tasks([file]):
        for batch in _stage(task, records, folder):
            for part in {row["part"] for row in batch.to_pylist()}:
                staged = pq.read_table(folder / f"events-{part}.parquet").to_pylist()
                found += [(row["block_start"], row["block_line"], row["record_id"]) for row in staged]
    return [record_id for _, _, record_id in sorted(found)]


@settings(max_examples=20)
@given(
    values=st.lists(st.sampled_from(["x", "é", "y" * 40, '"\n"', ""]), min_size=1, max_size=8),
    mark=st.booleans(),
    task_bytes=st.integers(8, 80),
    piece_bytes=st.integers(1, 60),
    is_csv=st.booleans(),
)
def test_ids_of_records_by_their_places_do_not_depend_on_how_the_file_is_cut_or_compressed(
    tmp_path_factory, values, mark, task_bytes, piece_bytes, is_csv
):
    folder = tmp_path_factory.mktemp("ids")
    format_ = Csv() if is_csv else JsonLines()
    if is_csv:
        text = "".join(f'"{value.replace(chr(34), chr(34) * 2)}",1\n' for value in ["n", *values])
        text = text.replace('"n",1', "n,o", 1)
    else:
        text = "".join(f"{json.dumps({'n': value})}\n" for value in values)
    content = (codecs.BOM_UTF8 if mark else b"") + text.encode()
    plain, packed = folder / "a", folder / "a.gz"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content, 1))
    records = JsonRecords(id_fields=(), max_record_bytes=10_000)
    whole = ids_of(plain, format_, folder / "whole", records)
    assert len(set(whole)) == len(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_lines, "TASK_BYTES", task_bytes)
        patch.setattr(lines, "_PIECE_BYTES", piece_bytes)
        assert ids_of(plain, format_, folder / "cut", records) == whole
        assert ids_of(packed, format_, folder / "packed", records) == whole
