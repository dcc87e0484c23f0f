"""The one MERGE as text: what it looks for, what it changes, and that no name can end it."""

from __future__ import annotations

import datetime as dt

import pytest

from etl_assets.contracts.tables.dead_letters import DEAD_LETTERS
from etl_assets.delta.read.partition_filter import PartitionFilter
from etl_assets.delta.write.upsert import UpsertSpec, check_columns, insert_sql, merge_sql
from etl_assets.errors import ContractError
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS

COLUMNS = ("id", "value", "day", "batch_id")


def sql(spec: UpsertSpec, **by) -> str:
    return merge_sql(spec, target="delta.`/t`", source="s_view", columns=COLUMNS, **by)


def test_with_an_ordering_only_a_newer_row_replaces_the_stored_one():
    assert sql(UpsertSpec(merge_key=("id",), ordering="value")) == (
        "MERGE INTO delta.`/t` t USING s_view s ON t.`id` = s.`id`\n"
        "WHEN MATCHED AND (s.`value` > t.`value` OR (t.`value` IS NULL AND s.`value` IS NOT NULL)) THEN"
        " UPDATE SET"
        " t.`id` = s.`id`, t.`value` = s.`value`, t.`day` = s.`day`, t.`batch_id` = s.`batch_id`\n"
        "WHEN NOT MATCHED THEN INSERT (`id`, `value`, `day`, `batch_id`)"
        " VALUES (s.`id`, s.`value`, s.`day`, s.`batch_id`)"
    )


def test_a_tie_breaker_decides_between_rows_of_one_order():
    text = sql(UpsertSpec(merge_key=("id",), ordering="value", tie_breaker="batch_id"))
    assert " OR (s.`value` <=> t.`value` AND s.`batch_id` > t.`batch_id`)) THEN UPDATE" in text
    with pytest.raises(ContractError, match="no `ordering`"):
        UpsertSpec(merge_key=("id",), tie_breaker="batch_id")


def test_a_row_that_deletes_removes_one_that_is_not_newer_and_adds_none():
    spec = UpsertSpec(merge_key=("id",), ordering="value", tie_breaker="batch_id", deleted_by="gone")
    text = merge_sql(spec, target="t", source="s", columns=("id", "value", "batch_id", "gone"))
    assert text == (
        "MERGE INTO t t USING s s ON t.`id` = s.`id`\n"
        "WHEN MATCHED AND s.`gone` AND (t.`value` IS NULL OR s.`value` > t.`value`"
        " OR (s.`value` = t.`value` AND s.`batch_id` >= t.`batch_id`)) THEN DELETE\n"
        "WHEN MATCHED AND NOT s.`gone` AND (s.`value` > t.`value` OR (t.`value` IS NULL AND s.`value` IS NOT"
        " NULL)"
        " OR (s.`value` <=> t.`value` AND s.`batch_id` > t.`batch_id`)) THEN UPDATE SET"
        " t.`id` = s.`id`, t.`value` = s.`value`, t.`batch_id` = s.`batch_id`\n"
        "WHEN NOT MATCHED AND NOT s.`gone` THEN INSERT (`id`, `value`, `batch_id`)"
        " VALUES (s.`id`, s.`value`, s.`batch_id`)"
    )
    with pytest.raises(ContractError, match="no `ordering`"):
        UpsertSpec(merge_key=("id",), deleted_by="gone")


def test_without_an_ordering_a_row_that_differs_replaces_but_for_columns_that_are_not_compared():
    text = sql(UpsertSpec(merge_key=("id",)), not_compared=("batch_id",))
    assert "WHEN MATCHED AND NOT (t.`value` <=> s.`value` AND t.`day` <=> s.`day`) THEN UPDATE" in text


def test_a_row_of_keys_alone_never_changes():
    text = merge_sql(UpsertSpec(merge_key=("id",)), target="t", source="s", columns=("id",))
    assert "WHEN MATCHED AND FALSE" in text


def test_a_users_column_is_compared_whatever_its_name():
    text = merge_sql(UpsertSpec(merge_key=("id",)), target="t", source="s", columns=("id", "batch_id"))
    assert "WHEN MATCHED AND NOT (t.`batch_id` <=> s.`batch_id`) THEN UPDATE" in text


def test_a_key_is_looked_for_wherever_the_partitions_of_the_run_lie():
    """A month has many Delta partitions, and a key may move among them."""
    spec = UpsertSpec(merge_key=("id",), delta_partition="day", partition_bound=True)
    month = PartitionFilter.between(dt.date(2026, 1, 1), dt.date(2026, 2, 1))
    assert "ON t.`id` = s.`id` AND (t.`day` >= DATE '2026-01-01' AND t.`day` < DATE '2026-02-01')\n" in sql(
        spec, lies_in=month
    )


def test_where_nothing_is_the_insert_names_its_columns():
    assert insert_sql(target="delta.`/t`", source="s_view", columns=("id", "a`b")) == (
        "INSERT INTO delta.`/t` (`id`, `a``b`) SELECT `id`, `a``b` FROM s_view"
    )


def test_insert_only_leaves_what_is_there():
    assert "MATCHED" not in sql(UpsertSpec(merge_key=("id",), insert_only=True)).replace("NOT MATCHED", "")


def test_a_key_bound_to_its_day_is_looked_for_in_the_days_named_as_literals():
    spec = UpsertSpec(merge_key=("id",), delta_partition="day", partition_bound=True)
    assert "ON t.`id` = s.`id` AND t.`day` = s.`day` AND t.`day` IN ('2026-01-05', '2026-01-06')\n" in sql(
        spec, partitions={"2026-01-06", "2026-01-05"}
    )
    assert " IN (" not in sql(spec)


def test_a_day_in_the_key_is_not_compared_twice():
    spec = UpsertSpec(merge_key=("id", "day"), delta_partition="day", partition_bound=True)
    assert sql(spec).count("t.`day` = s.`day` AND") + sql(spec).count("t.`day` = s.`day`\n") == 1


def test_a_key_that_may_cross_days_is_looked_for_in_the_whole_table():
    assert "`day` =" not in sql(
        UpsertSpec(merge_key=("id",), delta_partition="day", insert_only=True), partitions=["x"]
    )


def test_rows_that_replace_are_not_compared():
    text = sql(UpsertSpec(merge_key=("id",), ordering="value"), replace=True)
    assert "WHEN MATCHED THEN UPDATE SET" in text


def test_names_and_values_are_quoted():
    spec = UpsertSpec(merge_key=("a`b",), delta_partition="day", partition_bound=True)
    text = merge_sql(spec, target="t", source="s", columns=("a`b", "day"), partitions=["x'; DROP TABLE y --"])
    assert "t.`a``b` = s.`a``b`" in text
    assert "'x\\u0027; DROP TABLE y --'" in text


@pytest.mark.parametrize("fields", [{"merge_key": ()}, {"merge_key": ("id",), "partition_bound": True}])
def test_a_spec_that_contradicts_itself_is_refused(fields):
    with pytest.raises(ContractError):
        UpsertSpec(**fields)


def test_contracts_give_their_own_spec():
    assert UpsertSpec.of(DEAD_LETTERS).ordering == "attempts"
    assert UpsertSpec.of(WAREHOUSE_ROWS, partition_bound=True).delta_partition == "partition_date"


def test_a_frame_that_lacks_a_named_column_is_refused():
    with pytest.raises(ContractError, match="the rows for orders lack id, day") as refused:
        check_columns(UpsertSpec(merge_key=("id",), delta_partition="day").named, ["value"], table="orders")
    assert refused.value.missing == ["id", "day"]


def test_a_column_in_another_case_is_named_with_what_to_rename():
    with pytest.raises(ContractError, match="lack id") as refused:
        check_columns(UpsertSpec(merge_key=("id",)).named, ["ID"], table="orders")
    assert refused.value.fix == "rename ID to id"


def test_a_merge_key_of_one_text_is_refused():
    with pytest.raises(ContractError, match="`merge_key` is the text 'id'"):
        UpsertSpec(merge_key="id")  # ty: ignore[invalid-argument-type] - what a user may write


def test_nullable_keys_are_compared_so_that_null_is_null():
    spec = UpsertSpec(merge_key=("a", "b"), nullable_keys=True)
    assert "ON t.`a` <=> s.`a` AND t.`b` <=> s.`b`" in sql(spec)
