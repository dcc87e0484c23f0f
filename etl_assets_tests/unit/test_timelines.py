"""Which places of a log a promoted standby has."""

from __future__ import annotations

import pytest

from etl_assets.sources.postgres_cdc.log_position import LOG, LogPosition
from etl_assets.sources.postgres_cdc.timelines import Timelines, parse_history

HISTORY = "1\t0/3000100\tno recovery target specified\n\n2\t1/0\tno recovery target specified\n"


@pytest.mark.parametrize("content", [HISTORY, HISTORY.encode()])
def test_a_promoted_standby_has_the_log_up_to_its_promotion(content):
    found = Timelines(current=3, ends=parse_history(content))
    assert found.ends == {1: 0x3000100, 2: 1 << 32}
    assert found.lacks(1, 0x3000100) is None
    assert found.lacks(3, 5 << 32) is None
    assert "promoted at 0/3000100, and lacks transactions" in (found.lacks(1, 0x3000101) or "")
    assert "not in the history" in (found.lacks(4, 1) or "")


def test_a_position_keeps_its_timeline_and_how_far_rows_were_copied():
    position = LogPosition(system="1", lsn=10, timeline=2, again_until_lsn=20)
    assert LogPosition.of({LOG: position.as_json()}) == position
    assert position.read_until == 20
    old = {"system": "1", "lsn": "0/A"}  # as earlier versions wrote it
    assert LogPosition.of({LOG: old}) == LogPosition(system="1", lsn=10)
