"""What every source that is read in ranges must do. A test module gives the fixture `ranges`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from etl_assets.errors import SourceLost
from etl_assets.sources.formats import RecordFormat
from etl_assets.sources.lines import Block
from etl_assets.sources.ranges import RangeRead, RangeSource

FIRST, SECOND = dt.datetime(2026, 2, 1, 12, tzinfo=dt.UTC), dt.datetime(2026, 2, 2, 12, tzinfo=dt.UTC)
ALL = {"max_bytes": 1 << 20, "max_records": 1_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class RangesUnderTest:
    """A source with one partition.

    Attributes:
        source: The source, empty.
        format: How its files are read.
        add: Adds records of a time.
        lose: Removes the first records, by their number.
    """

    source: RangeSource
    format: RecordFormat
    add: Callable[[dt.datetime, list[bytes]], None]
    lose: Callable[[int], None]

    def lines(self, found: RangeRead, folder: Path) -> list[tuple[dt.date, int, bytes]]:
        """Return day, number in the source and content of each record that was read."""
        lines = []
        for each in found.files:
            path = str(folder / each.day.isoformat() / each.name)
            number = each.first_line
            for _, some in self.format.read(Block(path=path, start=0, end=None), 1 << 20):
                for line in some:
                    assert isinstance(line, bytes)
                    if line:
                        lines.append((each.day, number, line))
                    number += 1
        return lines


class RangeSourceContract:
    """The tests."""

    def test_an_empty_source_has_no_lag_once_its_position_is_known(self, ranges, tmp_path):
        wanted = ranges.source.plan({}, **ALL)
        end = {} if wanted is None else ranges.source.read(wanted, tmp_path).read.end
        assert ranges.source.plan(end, **ALL) is None
        assert ranges.source.lag(end).records == 0

    def test_a_range_has_its_records_by_day_in_order_with_their_numbers(self, ranges, tmp_path):
        ranges.add(FIRST, [b'{"a":1}', b'{"a":2}'])
        ranges.add(SECOND, [b'{"a":3}'])
        ranges.add(FIRST, [b'{"a":4}'])
        found = ranges.source.read(ranges.source.plan({}, **ALL), tmp_path)
        days = [FIRST.date(), FIRST.date(), SECOND.date(), FIRST.date()]
        assert ranges.lines(found, tmp_path) == [
            (day, number, b'{"a":%d}' % (number + 1)) for number, day in enumerate(days)
        ]
        assert ranges.source.plan(found.read.end, **ALL) is None

    def test_ranges_follow_each_other_without_gap_or_overlap(self, ranges, tmp_path):
        ranges.add(FIRST, [b'{"a":%d}' % number for number in range(10)])
        positions, read = {}, []
        for turn in range(20):
            if (wanted := ranges.source.plan(positions, max_bytes=1 << 20, max_records=3)) is None:
                break
            folder = tmp_path / str(turn)
            folder.mkdir()
            found = ranges.source.read(wanted, folder)
            read += [number for _, number, _ in ranges.lines(found, folder)]
            assert found.read.more == (len(read) < 10)
            positions = found.read.end
        assert read == list(range(10))

    def test_a_range_that_was_read_is_the_same_once_more_when_others_have_come(self, ranges, tmp_path):
        ranges.add(FIRST, [b'{"a":%d}' % number for number in range(5)])
        first, second = tmp_path / "first", tmp_path / "second"
        first.mkdir()
        second.mkdir()
        before = ranges.source.read(ranges.source.plan({}, **ALL), first)
        ranges.add(SECOND, [b'{"a":5}'])
        after = ranges.source.read(before.read, second)
        assert ranges.lines(before, first) == ranges.lines(after, second)
        assert after.read.end == before.read.end

    def test_lag_counts_what_is_unread_and_names_the_oldest(self, ranges, tmp_path):
        ranges.add(FIRST, [b'{"a":1}'])
        end = ranges.source.read(ranges.source.plan({}, **ALL), tmp_path).read.end
        ranges.add(SECOND, [b'{"a":2}', b'{"a":3}'])
        lag = ranges.source.lag(end)
        assert (lag.records, lag.oldest) == (2, SECOND)

    def test_what_is_gone_before_it_was_read_is_an_error_and_not_skipped(self, ranges, tmp_path):
        ranges.add(FIRST, [b'{"a":1}'])
        end = ranges.source.read(ranges.source.plan({}, **ALL), tmp_path).read.end
        ranges.add(FIRST, [b'{"a":2}', b'{"a":3}'])
        ranges.lose(2)
        with pytest.raises(SourceLost):
            ranges.source.plan(end, **ALL)
