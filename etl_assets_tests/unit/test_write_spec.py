"""What an asset's metadata declares of its writes."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from etl_assets.delta.write.upsert import UpsertSpec
from etl_assets.delta.write.write_spec import WriteMode, WriteSpec
from etl_assets.errors import ContractError


def read(**metadata: object) -> WriteSpec:
    return WriteSpec.from_metadata(
        {name.replace("__", "/"): value for name, value in metadata.items()}, asset="mine"
    )


@pytest.mark.parametrize(
    "spec",
    [
        WriteSpec(keys=("id",)),
        WriteSpec(keys=("id", "day"), sequence_by="at", delta_partition="day", partition_bound=True),
        WriteSpec(write_mode=WriteMode.INSERT, keys=("id",), columns="id STRING"),
        WriteSpec(write_mode=WriteMode.APPEND),
        WriteSpec(write_mode=WriteMode.REPLACE, delta_partition="day"),
        WriteSpec(
            write_mode=WriteMode.APPLY_CHANGES,
            keys=("id",),
            sequence_by="at",
            apply_as_deletes="op = 'D'",
            except_column_list=("op",),
        ),
    ],
    ids=lambda spec: str(spec.write_mode),
)
def test_a_spec_comes_back_from_its_metadata_also_from_values_of_dagsters(spec: WriteSpec):
    metadata = spec.to_metadata()
    assert WriteSpec.from_metadata(metadata, asset="mine") == spec
    normalized = dg.AssetSpec("mine", metadata=metadata).metadata
    assert WriteSpec.from_metadata(normalized, asset="mine") == spec


@pytest.mark.parametrize(
    ("earlier", "spec"),
    [
        (UpsertSpec(merge_key=("id",)), WriteSpec(keys=("id",))),
        (
            UpsertSpec(merge_key=("id",), ordering="at", delta_partition="day", partition_bound=True),
            WriteSpec(keys=("id",), sequence_by="at", delta_partition="day", partition_bound=True),
        ),
        (
            UpsertSpec(merge_key=("id",), insert_only=True, columns="id STRING"),
            WriteSpec(write_mode=WriteMode.INSERT, keys=("id",), columns="id STRING"),
        ),
    ],
    ids=["key", "ordering", "insert only"],
)
def test_the_earlier_names_are_read(earlier: UpsertSpec, spec: WriteSpec):
    assert WriteSpec.from_metadata(earlier.to_metadata(), asset="mine") == spec


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"write_mode": WriteMode.APPLY_CHANGES, "keys": ("id",)}, "needs `sequence_by`"),
        ({"keys": ("id",), "apply_as_deletes": "gone"}, "upsert deletes no rows"),
        ({"keys": ("id",), "except_column_list": ("id",)}, "id is needed in the table"),
    ],
)
def test_a_spec_of_changes_that_contradicts_itself_is_refused(fields: dict[str, Any], said: str):
    with pytest.raises(ContractError, match=said):
        WriteSpec(**fields)


def test_a_spec_may_be_written_by_hand():
    assert read(delta_upsert__keys="id", owner="x") == WriteSpec(keys=("id",))
    assert read(delta_upsert__write_mode="append").write_mode is WriteMode.APPEND
    assert read(delta_upsert__keys=["a", "b"], partition_expr="day").delta_partition == "day"
    assert read(delta_upsert__insert_only=False, delta_upsert__merge_key="id").write_mode is WriteMode.UPSERT


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({}, "the metadata of the asset mine: it has no keys"),
        ({"delta_upsert__write_mode": "insert"}, "it has no keys"),
        ({"delta_upsert__merge_keys": "id"}, "unknown names delta_upsert/merge_keys"),
        ({"delta_upsert__write_mode": "overwrite"}, "`write_mode` is 'overwrite'"),
        (
            {"delta_upsert__keys": "a", "delta_upsert__merge_key": "b"},
            "`keys` is 'a', and delta_upsert/merge_key says 'b'",
        ),
        (
            {
                "delta_upsert__keys": "a",
                "delta_upsert__insert_only": True,
                "delta_upsert__write_mode": "upsert",
            },
            "`write_mode` is 'insert', and delta_upsert/write_mode says 'upsert'",
        ),
        (
            {"delta_upsert__keys": "a", "delta_upsert__delta_partition": "day", "partition_expr": "date"},
            "`delta_partition` is 'day', and partition_expr says 'date'",
        ),
        (
            {"delta_upsert__keys": "a", "partition_expr": {"day": "d", "region": "r"}},
            "told apart by one column",
        ),
        (
            {"delta_upsert__keys": "a", "delta_upsert__write_mode": "append"},
            "`keys` has no meaning with `write_mode` append",
        ),
        (
            {"delta_upsert__sequence_by": "a", "delta_upsert__write_mode": "replace"},
            "`sequence_by` has no meaning with `write_mode` replace",
        ),
        ({"delta_upsert__keys": "a", "delta_upsert__partition_bound": True}, "there is no `delta_partition`"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_contradicts_itself_is_refused_with_the_asset_named(metadata: dict[str, object], said: str):
    with pytest.raises(ContractError, match="the metadata of the asset mine: ") as refused:
        read(**metadata)
    assert said in refused.value.message
    assert refused.value.fix


def test_a_near_miss_is_named():
    with pytest.raises(ContractError) as refused:
        read(delta_upsert__sequence="at")
    assert refused.value.fix.startswith("did you mean delta_upsert/sequence_by?")


def test_keys_of_one_text_are_refused():
    with pytest.raises(ContractError, match="`keys` is the text 'id'"):
        WriteSpec(keys="id")  # ty: ignore[invalid-argument-type] - what a user may write
