"""Declarations of Debezium's events: what they may have, and what the platform adds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contracts.write_mode import WriteMode
from etl_assets.pipelines.connection_rights import ConnectionRights
from etl_assets.pipelines.debezium_spec import OF_DEBEZIUM
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.pipelines.pipeline_file import PipelineFile, parse_pipeline
from etl_assets.pipelines.rest_rights import RestRights, right_problems
from etl_assets.pipelines.sink_checks import problems_of_targets
from etl_assets.pipelines.spec import PipelineSpec

TOPIC = {"type": "kafka", "connection": "events", "topic": "shop.customers"}
FILES = {"type": "files", "path": "events/*.jsonl"}


def parsed(reading: Any = TOPIC, *, table: Any = None, more: Any = None, **source: Any) -> PipelineFile:
    spec = {
        "name": "customers",
        "source": {"type": "debezium", "from": reading, **source},
        "columns": {"id": "bigint", "name": "string"},
        "table": {"keys": ["id"], **(table or {})},
        **(more or {}),
    }
    return parse_pipeline(json.dumps(spec).encode(), Path("customers.yaml"), {})


@pytest.mark.parametrize("reading", [TOPIC, FILES])
def test_the_table_applies_changes_by_their_place(reading):
    spec = parsed(reading).spec
    assert spec is not None
    assert spec.table.write_mode is WriteMode.APPLY_CHANGES
    tables = DeclaredTables(spec=spec, contract_of={}.__getitem__)
    assert tables.order == ("position_in_source", "_offset")
    assert [name for name in OF_DEBEZIUM if name in tables.table.names] == [
        "position_in_source",
        "unavailable_in_source",
    ]
    again = PipelineSpec.model_validate(spec.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert again == spec


@pytest.mark.parametrize(
    ("given", "field", "what"),
    [
        ({"reading": {**TOPIC, "id": ["id"]}}, "source.from", "leave id out"),
        ({"reading": {**TOPIC, "include": ["key"]}}, "source.from", "leave include out"),
        ({"reading": {**TOPIC, "tombstones": "keep"}}, "source.from", "leave tombstones out"),
        ({"reading": {"type": "files", "path": "e/*.csv"}}, "source.from", "ends with .jsonl"),
        ({"reading": {"type": "sql"}}, "source.from.type", "`files`, `kafka`"),
        ({"connector": "db2"}, "source.connector", "one of `mysql`"),
        ({"types": {"at": "timestamp"}}, "source.types.at", "use date, timestamp_millis"),
        ({"table": {"sequence_by": "name"}}, "", "leave table.sequence_by out"),
        ({"table": {"write_mode": "upsert"}}, "", "leave write_mode out"),
        ({"table": {"keys": ["other"]}}, "", "no column of the source"),
        (
            {"more": {"transforms": [{"type": "sql", "select": "select 1", "columns": {"id": "bigint"}}]}},
            "",
            "add `change_in_source: string` and `position_in_source: string`",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(given, field, what):
    problems = parsed(**given).problems
    assert len(problems) == 1
    assert problems[0].field == field
    assert what in str(problems[0])


def test_its_connection_is_checked_where_it_stands():
    no_connection = list(problems_of_targets(parsed(), []))
    assert [each.field for each in no_connection] == ["source.from.connection"]
    kafka = ConnectionRights(name="events", type="kafka", write=(), allows=lambda _: True)
    assert list(problems_of_targets(parsed(), [kafka])) == []


def test_rights_of_rest_are_those_of_what_is_read():
    allowed = RestRights(connections=("events",), read=("events/shop.customers",), folders=("events",))
    assert list(right_problems(parsed(), allowed)) == []
    assert list(right_problems(parsed(FILES), allowed)) == []
    none = RestRights(read=())
    assert [each.field for each in right_problems(parsed(), none)] == ["source.from.connection"]
    assert [each.field for each in right_problems(parsed(FILES), none)] == ["source.from.path"]
    other = RestRights(connections=("events",), read=("events/other",))
    assert [each.field for each in right_problems(parsed(), other)] == ["source.from.topic"]
