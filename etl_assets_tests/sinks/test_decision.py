"""What a target needs: nothing, what is new, or everything."""

from __future__ import annotations

import pytest

from etl_assets.sinks.decision import Extent, Head, extent_of
from etl_assets_tests.sinks.contract import at


@pytest.mark.parametrize(
    ("target", "head", "expected"),
    [
        (None, Head(position=at(3)), Extent.WHOLE),
        (at(3), Head(position=at(3)), Extent.NOTHING),
        (at(2), Head(position=at(3)), Extent.NEW),
        (at(3, tombstones=1), Head(position=at(3, tombstones=2)), Extent.NEW),
        (at(2, table_id="b"), Head(position=at(3)), Extent.WHOLE),
        (at(4), Head(position=at(3)), Extent.WHOLE),
        (at(3, tombstones=5), Head(position=at(3, tombstones=2)), Extent.WHOLE),
        (at(2), Head(position=at(3), rows_taken_out=True), Extent.WHOLE),
        (at(2), Head(position=at(3), has_truncate=True), Extent.WHOLE),
    ],
)
def test_what_a_target_needs_follows_from_its_position(target, head, expected):
    assert extent_of(target, head) is expected


def test_an_operator_can_ask_for_everything():
    assert extent_of(at(3), Head(position=at(3)), asked_whole=True) is Extent.WHOLE
