"""Lines validated by columns become what the validation of one record after the other makes of them."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl_assets.contracts import canonical_json
from etl_assets.contracts.canonical_json import Refused
from etl_assets.contracts.canonical_lines import canonical_texts
from etl_assets.contracts.envelope import AnnotatedRecord
from etl_assets.ingest import json_records
from etl_assets.ingest.json_records import JsonRecords
from etl_assets.sources.landing import REPLAYS
from etl_assets_tests.reference.staged_lines import input_file

DAY = dt.date(2026, 1, 2)
ESCAPES = "".join(map(chr, range(0x20))) + '"\\/\x7f\u2028\ud7ff\ufffd😀é'
TEXTS = st.one_of(
    st.text(max_size=6), st.text(alphabet=ESCAPES, max_size=4), st.text("0123456789.eE-", max_size=5)
)
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.integers(-(10**38), 10**38),
    st.integers(2**63 - 2, 2**64 + 2),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False),
)
VALUES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS, st.lists(st.integers(), max_size=2))
SPELLINGS = (
    *("0", "-0", "00", "01", "-1", "1.0", "1.10", "0.0", "-0.5", "0.50", ".5", "1.", "1e5", "1E5", "1e-7"),
    *("+1", "NaN", "0.0000001", "0.1000000000000000001", "123456789012345678.5", "9" * 19, "9" * 20),
    *("9" * 38, "9" * 39, "1." + "1" * 16, "1." + "1" * 17, '"a"', '"\\u0041"', '"\\/"', '"\\u001F"'),
    *('"\\u001f"', '"\\u0008"', '"\\b"', '"\t"', '"\\ud800"', '"\\u007f"', '"a\\', "true", "tru", "null"),
    *("[]", '{"a":1}', "1 "),
)
"""Values, most of them in another form than the canonical one."""


def written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str).replace("\ud800", "")


@st.composite
def lines(draw: st.DrawFn) -> list[bytes]:
    names = sorted(
        draw(
            st.lists(st.one_of(st.sampled_from(["id", "a", "b.c", 'q"', "é"]), TEXTS), min_size=1, max_size=3)
        )
    )
    found = []
    for _ in range(draw(st.integers(1, 4))):
        some = names if draw(st.integers(0, 9)) else list(reversed(names))
        values = [
            draw(st.one_of(st.sampled_from(SPELLINGS), VALUES.map(written), NUMBERS.map(str))) for _ in some
        ]
        fields = (
            f"{canonical_json.write(name).decode()}:{value}" for name, value in zip(some, values, strict=True)
        )
        found.append(("{" + ",".join(fields) + "}").encode())
    if not draw(st.integers(0, 9)):
        found[-1] += draw(st.sampled_from([b"\r", b" ", b"\xff", b"}", b"\n"]))
    return found


@settings(max_examples=100, deadline=None)
@given(lines())
def test_a_line_that_is_taken_is_its_own_canonical_form(given_lines):
    found = canonical_texts(given_lines)
    if found is None:
        return
    assert found.to_pylist() == [line.decode() for line in given_lines]
    for line in given_lines:
        content, value, _ = canonical_json.canonical(line)
        assert content == line
        assert type(value) is dict


@pytest.mark.parametrize("value", SPELLINGS)
def test_a_value_is_taken_only_in_its_canonical_form(value):
    line = f'{{"a":{value}}}'.encode()
    try:
        is_canonical = canonical_json.canonical(line)[0] == line
    except Refused:
        is_canonical = False
    taken = canonical_texts([line]) is not None
    assert not taken or is_canonical
    nested_or_long = value.startswith(("[", "{")) or len(value) > 18
    assert taken or not is_canonical or nested_or_long


@pytest.mark.parametrize(
    "taken", [b'{"a":1,"b":"x"}', b'{"a":-1.5,"b":null}', b'{"a":null,"b":"\\u001f\\n"}']
)
def test_lines_of_the_fields_of_the_first_one_are_taken(taken):
    assert canonical_texts([b'{"a":1,"b":"x"}', taken]) is not None


@pytest.mark.parametrize(
    "odd", [b'{"b":"x","a":1}', b'{"a":1}', b'{"a":1,"a":2}', b'{"a":1,"b":"x"} ', b'{"a":true,"b":"x"}', b""]
)
def test_one_other_line_leaves_all_to_the_validation_one_by_one(odd):
    assert canonical_texts([b'{"a":1,"b":"x"}', odd]) is None
    assert canonical_texts([odd, b'{"a":1,"b":"x"}']) is None


IDS = st.one_of(
    st.integers(-3, 3),
    st.integers(-(2**64), 2**64),
    TEXTS,
    st.text("é", min_size=510, max_size=514),
    st.none(),
    st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(IDS, IDS, TEXTS), min_size=1, max_size=4),
    st.sampled_from([("id",), ("other",), ("id", "other"), ("missing",), ()]),
    st.booleans(),
    st.sampled_from(["", "3", "3deleted"]),
    st.booleans(),
)
def test_columns_are_what_each_record_becomes(rows, id_fields, changes, version, is_replay):
    written_lines = [
        orjson.dumps({"id": id_, "other": other, "text": text}, default=str)
        if not any(isinstance(each, int) and abs(each) >= 2**63 for each in (id_, other))
        else canonical_json.write({"id": id_, "other": other, "text": text})
        for id_, other, text in rows
    ]
    records = JsonRecords(id_fields=id_fields, max_record_bytes=1_200, changes=changes)
    file = input_file("a.jsonl", 1, DAY)
    name = f"{'a' * 64}.2.jsonl" if is_replay else "a.jsonl"
    source = REPLAYS if is_replay else file.file.source
    file = replace(file, file=replace(file.file, source=source, name=name, version=version))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_records, "_FEW_LINES", 1)
        columns = records.columns_of(written_lines, file)
    if columns is None:
        return
    validate = records.validator(file)
    one_by_one = [validate(line, 0) for line in written_lines]
    assert all(each.reason is None for each in one_by_one)
    assert columns["record_id"].to_pylist() == [each.record_id for each in one_by_one]
    assert columns["record"].to_pylist() == [each.content for each in one_by_one]
    assert columns["fingerprint"].to_pylist() == [each.fingerprint for each in one_by_one]


@pytest.mark.parametrize("id_fields", [("id",), ("id", "name"), ("name",)])
def test_usual_records_are_validated_by_columns(id_fields):
    some = [orjson.dumps({"id": number, "name": f"n {number}", "ok": True}) for number in range(100)]
    records = JsonRecords(id_fields=id_fields, max_record_bytes=1_000)
    assert records.columns_of(some, input_file("a.jsonl", 1, DAY)) is not None
    assert records.columns_of([*some[:-1], b'{"id":1}'], input_file("a.jsonl", 1, DAY)) is None


def test_a_record_with_added_fields_is_validated_with_them():
    annotated = AnnotatedRecord(b'{"id":1}')
    annotated.added = {"kafka.key": "k"}
    assert canonical_texts([b'{"id":1}', annotated]) is None
