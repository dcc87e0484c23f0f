"""Ranges of days for runs: no longer than the settings say, unless their files are small."""

from __future__ import annotations

import datetime as dt

import pytest

from etl_assets.partitions import MAX_DAYS_OF_SMALL_RUN, ranges

FIRST = dt.date(2024, 1, 1)


def days(number: int, *, after: int = 0) -> list[dt.date]:
    return [FIRST + dt.timedelta(days=after + each) for each in range(number)]


def lengths(all_days: list[dt.date], **more) -> list[int]:
    return [(last - first).days + 1 for first, last in ranges(all_days, 31, **more)]


@pytest.mark.parametrize(
    ("size", "cut"),
    [
        (1, [MAX_DAYS_OF_SMALL_RUN, 34]),
        (10, [100, 100, 100, 100]),  # as many as have small_bytes together
        (30, [33, 33, 33, 33, 33, 33, 33, 33, 33, 33, 33, 33, 4]),
        (100, [31] * 12 + [28]),  # full days: as the settings say
    ],
)
def test_days_of_few_bytes_are_put_together(size, cut):
    all_days = days(400)
    found = lengths(all_days, sizes=dict.fromkeys(all_days, size), small_bytes=1_000)
    assert found == cut
    assert sum(found) == len(all_days)


def test_a_day_of_many_bytes_among_small_ones_ends_their_range():
    all_days = days(200)
    sizes = {**dict.fromkeys(all_days, 1), all_days[100]: 5_000}
    assert lengths(all_days, sizes=sizes, small_bytes=1_000) == [100, 31, 69]


def test_days_of_unknown_size_count_as_full_ones():
    all_days = days(70)
    assert lengths(all_days, sizes={}, small_bytes=1_000) == [31, 31, 8]
    assert lengths(all_days) == [31, 31, 8]


def test_no_range_spans_a_gap_however_small():
    all_days = [*days(40), *days(40, after=41)]
    assert lengths(all_days, sizes=dict.fromkeys(all_days, 0), small_bytes=1) == [40, 40]
