"""Declarations of queries: which fields go together, and the deletes that follow from them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from etl_assets.contracts.write_mode import WriteMode
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.pipelines.spec import DELETED_COLUMN, PipelineSpec

FULL = {"load": "full", "id": ["film_id"]}
INCREMENTAL = {"incremental_key": "changed", "incremental_id_key": "film_id"}


def declaration(source: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": "films",
        "source": {"type": "sql", "connection": "shop", "query": "SELECT 1 AS film_id", **source},
        "columns": {"film_id": "bigint", "changed": "timestamp"},
        "table": {"keys": ["film_id"]},
        **more,
    }


@pytest.mark.parametrize("source", [FULL, {**INCREMENTAL, "detect_deletes_interval_seconds": 60}])
def test_a_table_applies_the_deletes_that_its_source_reports_and_does_not_store_their_column(source):
    spec = PipelineSpec.model_validate(declaration(source))
    assert spec.table.write_mode is WriteMode.APPLY_CHANGES
    tables = DeclaredTables(spec=spec, contract_of={}.__getitem__)
    assert DELETED_COLUMN not in tables.table.names
    assert DELETED_COLUMN in [column.name for column in tables.parsed_columns]
    assert tables.tombstones is not None
    # What is written down of it is the same declaration.
    again = PipelineSpec.model_validate(spec.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert again == spec


def test_an_incremental_query_without_detection_is_what_it_was():
    spec = PipelineSpec.model_validate(declaration(INCREMENTAL))
    assert spec.table.write_mode is WriteMode.UPSERT
    assert DELETED_COLUMN not in spec.columns


def test_deletes_by_a_condition_and_by_the_source_go_together():
    table = {"keys": ["film_id"], "write_mode": "apply_changes", "apply_as_deletes": "changed is null"}
    source = {**INCREMENTAL, "detect_deletes_interval_seconds": 60}
    spec = PipelineSpec.model_validate(declaration(source, table=table))
    assert spec.table.apply_as_deletes == "(changed is null) OR coalesce(deleted_in_source, false)"


@pytest.mark.parametrize(
    ("source", "more", "message"),
    [
        ({}, {}, "incremental_key and incremental_id_key"),
        ({"load": "full"}, {}, "full needs id"),
        ({**FULL, "overlap": 5}, {}, "takes no overlap"),
        ({**FULL, "id": ["a", "b", "c"]}, {}, "at most 2"),
        ({**FULL, "id": ["a", "a"]}, {}, "twice"),
        ({**FULL, "query": "SELECT 1 AS film_id; DELETE FROM film"}, {}, "more than one statement"),
        ({**INCREMENTAL, "id": ["film_id"]}, {}, "takes no id"),
        ({**INCREMENTAL, "load_interval_seconds": 9}, {}, "takes no load_interval_seconds"),
        (FULL, {"table": {"keys": ["film_id"], "write_mode": "upsert"}}, "upsert deletes no rows"),
        (FULL, {"table": {"keys": ["film_id"], "write_mode": "replace"}}, "not replaced"),
        (FULL, {"table": {"keys": ["film_id"], "sequence_by": "changed"}}, "leave sequence_by out"),
        (FULL, {"columns": {"film_id": "bigint", DELETED_COLUMN: "boolean"}}, "give yours another name"),
        (
            FULL,
            {"transforms": [{"type": "sql", "select": "select 1", "columns": {"film_id": "bigint"}}]},
            "transforms.0.columns has no `deleted_in_source: boolean`",
        ),
    ],
)
def test_what_does_not_go_together_is_named(source, more, message):
    with pytest.raises(ValidationError, match=message):
        PipelineSpec.model_validate(declaration(source, **more))
