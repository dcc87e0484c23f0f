"""One meaning has one canonical text, whichever path parses it; what has no single meaning is refused."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.contracts import canonical_json
from etl_assets.contracts.reasons import DeadLetterReason

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.integers(-(10**37), 10**37) | st.decimals(-(10**6), 10**6, places=3).map(float)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(TEXT, children, max_size=3),
    max_leaves=8,
)


def canonical(line: bytes) -> bytes:
    value, fast = canonical_json.parse(line)
    return canonical_json.write_fast(value) if fast else canonical_json.write(value)


def strict(line: bytes) -> bytes:
    return canonical_json.write(canonical_json._parse_strictly(line))


def refusal(line: bytes) -> canonical_json.Refused:
    with pytest.raises(canonical_json.Refused) as refused:
        canonical_json.parse(line)
    return refused.value


@given(VALUES)
def test_the_two_paths_give_the_same_bytes(value):
    value = {"value": value}
    for written in (
        json.dumps(value),
        json.dumps(value, ensure_ascii=False),
        json.dumps(value, separators=(",", ":"), ensure_ascii=False),
    ):
        if not _has_exponent(written):
            assert canonical(written.encode()) == strict(written.encode())


def _has_exponent(text: str) -> bool:
    try:
        canonical_json._parse_strictly(text.encode())
    except canonical_json.Refused as refused:
        return refused.reason is DeadLetterReason.UNSAFE_NUMBER
    return False


@given(VALUES)
def test_a_canonical_text_is_its_own_canonical_text_and_means_the_same(value):
    line = json.dumps(value).encode()
    if _has_exponent(line.decode()):
        return
    once = canonical(line)
    assert canonical(once) == once
    assert json.loads(once, parse_float=Decimal, parse_int=Decimal) == json.loads(
        line, parse_float=Decimal, parse_int=Decimal
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"b":1,"a":2}', '{ "a" : 2 , "b" : 1 }'),
        ('{"n":1.10}', '{"n":1.1}'),
        ('{"n":1.0}', '{"n":1}'),
        ('{"n":-0}', '{"n":0}'),
        ('{"n":-0.00}', '{"n":0}'),
        ('{"n":[1.10,2.0]}', '{"n":[1.1,2]}'),
        (r'{"t":"\u00e9"}', '{"t":"é"}'),
        (r'{"t":"\/"}', '{"t":"/"}'),
        (r'{"t":"\ud83d\ude00"}', '{"t":"😀"}'),
    ],
)
def test_spellings_of_one_meaning_have_one_text(one, other):
    assert canonical(one.encode()) == canonical(other.encode())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"n":"1"}', '{"n":1}'),
        ('{"n":null}', "{}"),
        ('{"t":"e\u0301"}', '{"t":"é"}'),
        ('{"n":[1,2]}', '{"n":[2,1]}'),
        ('{"n":9007199254740993}', '{"n":9007199254740992}'),
        ('{"n":0.10000000000000000001}', '{"n":0.1}'),
    ],
)
def test_different_meanings_have_different_texts(one, other):
    assert canonical(one.encode()) != canonical(other.encode())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", DeadLetterReason.MALFORMED_JSON),
        (b"not json", DeadLetterReason.MALFORMED_JSON),
        (b'{"a":1', DeadLetterReason.MALFORMED_JSON),
        (b'{"a":1} trailing', DeadLetterReason.MALFORMED_JSON),
        (b'{"a":1}{"b":2}', DeadLetterReason.MALFORMED_JSON),
        (b'{"a":NaN}', DeadLetterReason.MALFORMED_JSON),
        (b'{"a":-Infinity}', DeadLetterReason.MALFORMED_JSON),
        (b'{"a":01}', DeadLetterReason.MALFORMED_JSON),
        (b'{"a":"\x00"}', DeadLetterReason.MALFORMED_JSON),
        (rb'{"a":"\ud800"}', DeadLetterReason.MALFORMED_JSON),
        (rb'{"\udfff":1}', DeadLetterReason.MALFORMED_JSON),
        (b"[" * 101 + b"]" * 101, DeadLetterReason.MALFORMED_JSON),
        (b"[" * 100_000 + b"]" * 100_000, DeadLetterReason.MALFORMED_JSON),
        (b'{"a":{"b":1,"b":1}}', DeadLetterReason.DUPLICATE_KEY),
        (b'{"a":"\xff"}', DeadLetterReason.INVALID_UTF8),
        (b'{"a":"\xed\xa0\x80"}', DeadLetterReason.INVALID_UTF8),
        (b'{"a":1e0}', DeadLetterReason.UNSAFE_NUMBER),
        (b'{"a":1E400}', DeadLetterReason.UNSAFE_NUMBER),
        (b'{"a":' + b"1" * 39 + b"}", DeadLetterReason.UNSAFE_NUMBER),
        (b'{"a":0.' + b"1" * 38 + b"}", DeadLetterReason.UNSAFE_NUMBER),
    ],
    ids=lambda value: value[:24] if isinstance(value, bytes) else value.value,
)
def test_what_has_no_single_meaning_is_refused(line, reason):
    assert refusal(line).reason is reason


def test_the_largest_number_and_the_deepest_nesting_are_taken():
    assert canonical(b'{"a":' + b"9" * 38 + b"}") == b'{"a":' + b"9" * 38 + b"}"
    assert canonical(b"[" * 100 + b"]" * 100) == b"[" * 100 + b"]" * 100
