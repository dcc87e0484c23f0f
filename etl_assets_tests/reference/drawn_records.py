"""Records with all sorts of values, drawn by hypothesis: hard ones for a conversion to typed columns."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

from hypothesis import strategies as st

NAMES = ("a", "A", "a.b", "it's", 'quo"te', "straße ü", "$x", "`tick`", "back\\slash")

digits = st.from_regex(r"[+-]?[0-9]{1,25}(\.[0-9]{1,12})?", fullmatch=True)
numbers = st.one_of(
    st.integers(-(10**37), 10**37),
    st.sampled_from([0, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1]),
    st.decimals(allow_nan=False, allow_infinity=False, places=10, min_value=-(10**20), max_value=10**20),
    st.sampled_from([Decimal("0.1"), Decimal("12.50"), Decimal("0.1000000000000000055511151231257827"),
                     Decimal("1234567890123456789.01"), Decimal("0.0001"), Decimal("123456789.125")]),
)  # fmt: skip
times = st.one_of(
    st.datetimes(timezones=st.sampled_from([dt.UTC, None])).map(lambda at: at.isoformat()),
    st.from_regex(
        r"(0000|0001|2024|9999)-(02|13|12)-(29|31)[Tt"
        r" ](00|23|24):(00|59|60)(:(00|60)(\.[0-9]{1,9})?)?([Zz]|[+-](00|14|18|19):(00|30|60))?",
        fullmatch=True,
    ),
)
texts = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
    digits,
    digits.map(lambda text: f" {text}\t"),
    st.sampled_from(["true", "FALSE", " True ", "1e5", "1E+400", "NaN", "Infinity", "1.", ".5", "-", "+",
        "0x1F",
                     "1_000", "12.500", "12.505", "007", "٣", "5\n", "[1]", '{"a":1}', '1"', "1\\", "null",
                     "12d", "1L",
                     "2024-02-29", "2023-02-29", "0000-01-01", "2024-1-1", "2024-02-29 ", "2024-02-29\n"]),
    times,
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=2),
    max_leaves=3,
)
records = st.dictionaries(st.sampled_from(NAMES), values, max_size=len(NAMES))
