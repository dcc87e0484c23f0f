"""Rules of every kind, values to try them on, and what each rule means, said once more in plain Python."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from etl_assets.contracts.rules import (
    AtLeast,
    AtMost,
    DoesNotContain,
    HexDigits,
    Matches,
    MaxCharacters,
    NotEmpty,
    OneOf,
    Rule,
)

NASTY = (
    "it's",
    'a"b',
    "back\\slash",
    "\\u0041",
    "${spark.app.name}",
    "' OR '1'='1",
    "line\nfeed",
    "`",
    "%_",
    "\\",
)

TEXT_RULES: tuple[Rule, ...] = (
    NotEmpty(),
    MaxCharacters(3),
    MaxCharacters(0),
    OneOf(("created", "paid", "ä", "")),
    OneOf(NASTY),
    DoesNotContain("/"),
    DoesNotContain("'"),
    DoesNotContain("${spark.app.name}"),
    HexDigits(3),
    HexDigits(4),
    Matches("[A-Z]{3}", "three capital letters"),
    Matches("[^/]+", "free of slashes"),
    Matches("[0-9a-f]{2,4}|x*", "hexadecimal"),
    Matches("(?:a|b)*c?", "letters"),
    Matches("[$.*^]+", "signs"),
)
BIGINT_RULES: tuple[Rule, ...] = (
    AtLeast(0),
    AtLeast(-(2**63)),
    AtMost(7),
    AtMost(2**62),
    AtLeast(Decimal("0.5")),
    AtMost(Decimal("0.5")),
)
AMOUNT_RULES: tuple[Rule, ...] = (
    AtLeast(0),
    AtLeast(Decimal("0.01")),
    AtMost(Decimal("1E+3")),
    AtMost(10**17),
)
RULES = [
    *(("text", "STRING", rule) for rule in TEXT_RULES),
    *(("number", "BIGINT", rule) for rule in BIGINT_RULES),
    *(("amount", "DECIMAL(18,2)", rule) for rule in AMOUNT_RULES),
]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.text("abcABC0f/$.*^\n", max_size=6)
edge_texts = st.sampled_from(
    [
        None,
        "",
        "ABC",
        "ABC\n",
        "ABCD",
        "aff",
        "a/b",
        "\u2028",
        "𝟘𝟘𝟘",
        "äöü",
        "abc",
        "0aF",
        "00ff",
        "0xf",
        "-0ff",
        "ａff",
        *NASTY,
    ]
)
numbers = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([None, -1, 0, 1, 7, 8, 2**62, 2**62 + 1])
amounts = st.decimals(-(10**15), 10**15, places=2) | st.sampled_from(
    [None, *map(Decimal, ("-0.01", "0.00", "0.01", "1000.00", "1000.01"))]
)
rows = st.tuples(edge_texts | texts, numbers, amounts)


def holds(rule: Rule, value: Any) -> bool:
    """What a rule means, said once more and in plain Python; null passes."""
    return value is None or holds_for_what_is_there(rule, value)


def holds_for_what_is_there(rule: Rule, value: Any) -> bool:
    match rule:
        case AtLeast(bound):
            return value >= bound
        case AtMost(bound):
            return value <= bound
        case OneOf(values):
            return value in values
        case NotEmpty():
            return value != ""
        case MaxCharacters(limit):
            return len(value) <= limit
        case DoesNotContain(text):
            return text not in value
        case HexDigits(length):
            return len(value) == length and set(value) <= set("0123456789abcdef")
        case Matches(pattern):
            return re.fullmatch(pattern, value) is not None
    raise AssertionError(rule)
