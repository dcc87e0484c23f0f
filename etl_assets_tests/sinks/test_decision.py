"""What a target needs: nothing, what is new, or everything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etl_assets.sinks.decision import DeliveryExtent, Head, extent_of
from etl_assets_tests.sinks.contract import at


@pytest.mark.parametrize(
    ("target", "head", "expected"),
    [
        (None, Head(position=at(3)), DeliveryExtent.WHOLE),
        (at(3), Head(position=at(3)), DeliveryExtent.NOTHING),
        (at(2), Head(position=at(3)), DeliveryExtent.NEW),
        (at(3, tombstones=1), Head(position=at(3, tombstones=2)), DeliveryExtent.NEW),
        (at(2, table_id="b"), Head(position=at(3)), DeliveryExtent.WHOLE),
        (at(4), Head(position=at(3)), DeliveryExtent.WHOLE),
        (at(3, tombstones=5), Head(position=at(3, tombstones=2)), DeliveryExtent.WHOLE),
        (at(2), Head(position=at(3), rows_taken_out=True), DeliveryExtent.WHOLE),
        (at(2), Head(position=at(3), has_truncate=True), DeliveryExtent.WHOLE),
    ],
)
def test_what_a_target_needs_follows_from_its_position(target, head, expected):
    assert extent_of(target, head) is expected


def test_an_operator_can_ask_for_everything():
    assert extent_of(at(3), Head(position=at(3)), asked_whole=True) is DeliveryExtent.WHOLE


@pytest.mark.parametrize(
    ("target", "recorded", "expected"),
    [
        (at(2), None, DeliveryExtent.NEW),
        (at(2), at(2), DeliveryExtent.NEW),  # also where the record is all that keeps the position
        (at(2), at(1), DeliveryExtent.NEW),  # its writer was killed before the record
        (at(1), at(2), DeliveryExtent.WHOLE),
        (at(1), at(2, table_id="b"), DeliveryExtent.NEW),  # the record is another table's
        (at(2), replace(at(2), replays=4), DeliveryExtent.WHOLE),
        (replace(at(2), replays=5), replace(at(2), replays=4), DeliveryExtent.NEW),
    ],
)
def test_a_target_behind_its_record_was_put_back_and_gets_everything(target, recorded, expected):
    assert extent_of(target, Head(position=at(3)), recorded=recorded) is expected
