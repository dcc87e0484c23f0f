"""The next range is read while the rows of the one before are stored, and used only if it is the next."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from etl_assets.errors import SourceUnavailable
from etl_assets.ingest.read_ahead import ReadAhead
from etl_assets.sources.positions import positions_after
from etl_assets.sources.ranges import Positions, RangeRead, ReadRange


def plan(positions: Positions) -> ReadRange | None:
    """Three records at a time, of ten."""
    begin = positions.get("p", 0)
    if begin >= 10:
        return None
    return ReadRange(begin={"p": begin}, end={"p": min(10, begin + 3)}, more=begin + 3 < 10)


def read(wanted: ReadRange, folder: Path) -> RangeRead:
    (folder / "records").write_text(str(wanted.begin["p"]))
    return RangeRead(read=wanted, files=())


def test_the_range_after_some_positions_is_there_when_its_turn_comes(tmp_path):
    reads = threading.Event()

    def slow(wanted: ReadRange, folder: Path) -> RangeRead:
        reads.wait(10)
        return read(wanted, folder)

    with ReadAhead(plan, slow, tmp_path) as ahead:
        assert ahead.take({}) is None, "nothing was begun"
        ahead.begin({"p": 3})
        reads.set()
        found = ahead.take({"p": 3})
        assert found is not None
        assert found.found.read.end == {"p": 6}
        assert (found.folder / "records").read_text() == "3"
        assert ahead.take({"p": 6}) is None, "each is used once"


def test_a_range_after_other_positions_is_not_used_and_its_files_are_removed(tmp_path):
    with ReadAhead(plan, read, tmp_path) as ahead:
        ahead.begin({"p": 3})
        assert ahead.take({"p": 4}) is None
        assert not list(tmp_path.iterdir())


def test_what_cannot_be_read_ahead_is_left_to_its_turn(tmp_path):
    def fails(wanted: ReadRange, folder: Path) -> RangeRead:
        raise SourceUnavailable("gone", fix="wait", source="s")

    with ReadAhead(plan, fails, tmp_path) as ahead:
        ahead.begin({"p": 3})
        assert ahead.take({"p": 3}) is None


def test_an_error_of_the_program_is_not_hidden(tmp_path):
    def fails(wanted: ReadRange, folder: Path) -> RangeRead:
        raise ZeroDivisionError

    with ReadAhead(plan, fails, tmp_path) as ahead:
        ahead.begin({"p": 3})
        with pytest.raises(ZeroDivisionError):
            ahead.take({"p": 3})


def test_at_the_end_of_a_source_there_is_nothing_to_read_ahead(tmp_path):
    with ReadAhead(plan, read, tmp_path) as ahead:
        ahead.begin({"p": 10})
        assert ahead.take({"p": 10}) is None


def test_it_ends_only_once_nothing_calls_the_source_any_more(tmp_path):
    """Its caller closes the source then."""
    done: list[str] = []
    reads = threading.Event()

    def slow(wanted: ReadRange, folder: Path) -> RangeRead:
        reads.set()
        threading.Event().wait(0.2)
        done.append("read")
        return read(wanted, folder)

    def interrupted() -> None:
        with ReadAhead(plan, slow, tmp_path) as ahead:
            ahead.begin({})
            reads.wait(10)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["read"]


@pytest.mark.parametrize(
    ("before", "end", "after"),
    [
        ({}, {"t": "id", "t/0": 3}, {"t": "id", "t/0": 3}),
        ({"t/0": 3, "t/1": 4}, {"t/0": 5, "t/1": None}, {"t/0": 5}),
        ({"q": {"pair": (1, "a"), "window": None}}, {}, {"q": {"pair": [1, "a"], "window": None}}),
    ],
)
def test_positions_after_a_range_are_those_that_its_commit_leaves(before, end, after):
    assert positions_after(before, end) == after
