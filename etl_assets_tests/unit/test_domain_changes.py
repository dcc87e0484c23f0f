"""What two looks at the tables tell of the time between them."""

from __future__ import annotations

from etl_assets.observability.domain_changes import ChangeKind, Noted, changes

NEW = Noted(leader=None, epoch=0, generation=1, version=-1)
LED = Noted(leader="local/a", epoch=1, generation=2, version=3)


def test_a_table_that_is_led_for_the_first_time_has_not_moved():
    assert list(changes({"orders": NEW}, {"orders": LED})) == []


def test_another_leader_is_a_relocation_and_its_readers_bind_again():
    moved = Noted(leader="local/b", epoch=2, generation=3, version=3)
    found = list(changes({"orders": LED}, {"orders": moved, "new": LED}))
    assert [(each.kind, each.table) for each in found] == [
        (ChangeKind.RELOCATED, "orders"),
        (ChangeKind.REBOUND, "orders"),
    ]
    assert str(found[0]) == "orders: led by local/b under epoch 2, before by local/a under epoch 1"
