"""Declarations that say `keep_records: false`: what they may not have is named, with the fix."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from etl_assets.errors import ContractError
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.pipelines.spec import PipelineSpec
from etl_assets.steps.declared_pipeline import declared_pipeline


def spec(*, columns: Any = None, table: Any = None, **more: Any) -> PipelineSpec:
    source = {
        "type": "sql",
        "connection": "shop",
        "query": "SELECT * FROM film",
        "keep_records": False,
        "incremental_key": "updated_at",
        "incremental_id_key": "film_id",
        **more.pop("source", {}),
    }
    return PipelineSpec.model_validate(
        {
            "name": "films",
            "source": source,
            "columns": columns or {"film_id": "bigint", "updated_at": "timestamp"},
            "table": {"keys": ["film_id"], **(table or {})},
            **more,
        }
    )


def tables(spec: PipelineSpec) -> DeclaredTables:
    return DeclaredTables(spec=spec, contract_of={}.__getitem__)


def test_a_pipeline_without_records_is_one_stage_with_one_table():
    made = declared_pipeline(tables(spec()))
    (stage,) = made.path
    assert [each.name for each in stage.tables] == ["films", "films_rejects"]
    assert not stage.keeps_records
    assert not any(column.derived_from for column in stage.table.columns)
    assert made.history is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"source": {"load": "full", "id": ["film_id"], "incremental_key": None,
                "incremental_id_key": None}},
            "use `load: incremental`",
        ),
        ({"source": {"overlap": 60}}, "remove overlap"),
        ({"source": {"detect_deletes_interval_seconds": 60}}, "remove detect_deletes_interval_seconds"),
        ({"transforms": [{"type": "filter", "where": "film_id > 1"}]}, "remove the transforms"),
        ({"table": {"keys": [], "write_mode": "append"}}, "use upsert or insert with keys"),
        (
            {"columns": {"film_id": "bigint", "t": "string"}, "table": {"trace_context": "t"}},
            "remove table.trace_context",
        ),
        (
            {"columns": {"film_id": "bigint", "code": {"type": "string", "matches": "a+"}}},
            "columns.code.matches",
        ),
        (
            {"columns": {"film_id": "bigint", "mean": {"type": "double", "at_least": 0}}},
            "columns.mean is DOUBLE",
        ),
    ],
)  # fmt: skip
def test_what_needs_the_records_is_named_with_the_fix(changes, named):
    with pytest.raises(ValidationError, match="keep_records: false") as refused:
        spec(**changes)
    assert named in str(refused.value)
    assert "or remove keep_records" in str(refused.value)


def test_a_column_of_a_nested_type_is_named():
    declared = spec(columns={"film_id": "bigint", "tags": "array<string>"})
    with pytest.raises(ContractError, match=r"tags is ARRAY<STRING>"):
        _ = tables(declared).all


def log(*, columns: Any = None, table: Any = None, **more: Any) -> PipelineSpec:
    source = {
        "type": "postgres_cdc",
        "connection": "shop",
        "table": "public.film",
        "slot": "film",
        "publication": "film",
        "keep_records": False,
    }
    return PipelineSpec.model_validate(
        {
            "name": "films",
            "source": source,
            "columns": columns or {"film_id": "bigint"},
            "table": {"keys": ["film_id"], **(table or {})},
            **more,
        }
    )


def test_a_log_without_records_is_one_stage_that_has_tombstones():
    made = declared_pipeline(tables(log()))
    (stage,) = made.path
    assert [each.name for each in stage.tables] == ["films", "films_rejects", "films_tombstones"]
    assert not stage.keeps_records
    # A declaration that was completed is completed again without a difference.
    assert PipelineSpec.model_validate(log().model_dump(by_alias=True)).table == log().table


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"transforms": [{"type": "filter", "where": "film_id > 1"}]}, "remove the transforms"),
        (
            {"columns": {"film_id": "bigint", "t": "string"}, "table": {"trace_context": "t"}},
            "remove table.trace_context",
        ),
        (
            {"columns": {"film_id": "bigint", "code": {"type": "string", "matches": "a+"}}},
            "check it in the database",
        ),
        ({"table": {"history": True}}, "remove table.history"),
    ],
)
def test_what_a_log_without_records_may_not_have_is_named_with_the_fix(changes, named):
    with pytest.raises(ValidationError, match="keep_records: false") as refused:
        log(**changes)
    assert named in str(refused.value)
    assert "or remove keep_records" in str(refused.value)
