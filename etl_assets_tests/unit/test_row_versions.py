"""Versions of rows, by the query over changes that arrive in any order."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.pipelines.row_versions import RowVersions
from etl_assets.pipelines.spec import PipelineSpec
from etl_assets.query.sql import ENGINE_SETTINGS
from etl_assets.steps.declared_pipeline import declared_pipeline

VERSIONS = RowVersions(
    name="film_versions",
    history="film_history",
    keys=("id",),
    columns=("id", "valid_from"),
    sequence="lsn_in_source",
    sequence_type="BIGINT",
    place="lsn",
    numbered=True,
    change="change_in_source",
    lacks="unavailable_in_source",
    fields={"valid_from": '"valid_from":'},
)
_SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "valid_from": pa.string(),
        "change_in_source": pa.string(),
        "operation_in_source": pa.string(),
        "lsn_in_source": pa.int64(),
        "sequence_in_source": pa.int64(),
        "committed_at_in_source": pa.timestamp("us", "UTC"),
        "unavailable_in_source": pa.string(),
        "_offset": pa.int64(),
    }
)
_EFFECTS = {"delete": "delete", "truncate": "truncate", "copy begins": "truncate"}


def versions(folder: Any, *changes: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return (key, value, from, until) of changes: place, operation, key, value, what the change lacks."""
    rows = [
        {
            "id": key,
            "valid_from": value[0] if value else None,
            "change_in_source": _EFFECTS.get(operation, "upsert"),
            "operation_in_source": operation.removesuffix(" begins"),
            "lsn_in_source": lsn,
            "sequence_in_source": number,
            "committed_at_in_source": dt.datetime.fromtimestamp(lsn, dt.UTC),
            "unavailable_in_source": value[1] if len(value) > 1 else None,
            "_offset": number,
        }
        for number, (lsn, operation, key, *value) in enumerate(changes)
    ]
    random.Random(1).shuffle(rows)
    write_deltalake(str(folder), pa.Table.from_pylist(rows, _SCHEMA))
    query = QueryBuilder(ENGINE_SETTINGS).register("film_history", DeltaTable(str(folder)))
    query.execute(f"CREATE VIEW film_versions AS {VERSIONS.sql()}")
    found = pa.RecordBatchReader.from_stream(
        query.execute("SELECT * FROM film_versions ORDER BY id, valid_from_lsn")
    ).read_all()
    assert found.column_names[2:] == [
        *("valid_from_", "valid_to", "is_current", "valid_from_lsn", "valid_to_lsn")
    ]
    told = found.to_pylist()
    assert all(row["is_current"] is (row["valid_to"] is None) for row in told)
    assert all(row["valid_from_"].timestamp() == row["valid_from_lsn"] for row in told)
    return [(row["id"], row["valid_from"], row["valid_from_lsn"], row["valid_to_lsn"]) for row in told]


def test_a_version_ends_with_an_update_a_delete_or_a_truncate(tmp_path):
    assert versions(
        tmp_path,
        (10, "insert", 1, "a"),
        (10, "insert", 2, "b"),
        (20, "update", 1, "c"),
        (30, "delete", 2),
        (40, "truncate", None),
        (40, "insert", 3, "d"),
        (50, "insert", 1, "c"),
    ) == [(1, "a", 10, 20), (1, "c", 20, 40), (1, "c", 50, None), (2, "b", 10, 30), (3, "d", 40, None)]


def test_what_a_transaction_makes_and_ends_and_what_changes_nothing_are_no_versions(tmp_path):
    assert versions(
        tmp_path,
        (10, "insert", 1, "a"),
        (10, "update", 1, "b"),
        (20, "update", 1, "b"),
        (30, "insert", 2, "c"),
        (30, "delete", 2),
        (40, "insert", 3, "d"),
        (40, "truncate", None),
    ) == [(1, "b", 10, 40)]


def test_another_copy_ends_only_what_it_does_not_find(tmp_path):
    assert versions(
        tmp_path,
        *((10, "copy", key, "a") for key in (1, 2, 3, 4, 5)),
        (20, "copy begins", None),
        (20, "copy", 1, "a"),
        (25, "update", 2, "b"),
        (26, "delete", 3),
        (30, "copy", 2, "b"),
        (30, "copy", 4, "c"),
        (40, "insert", 5, "d"),
    ) == [
        (1, "a", 10, None),
        (2, "a", 10, 25),
        (2, "b", 25, None),
        (3, "a", 10, 26),
        (4, "a", 10, 20),
        (4, "c", 20, None),
        (5, "a", 10, 20),
        (5, "d", 40, None),
    ]


def test_a_copy_that_is_begun_again_makes_no_gap(tmp_path):
    assert versions(
        tmp_path,
        (10, "copy", 1, "a"),
        (20, "copy begins", None),
        (30, "copy begins", None),
        (31, "copy", 1, "a"),
    ) == [(1, "a", 10, None)]


def test_long_values_are_those_of_the_change_before_but_not_of_a_row_that_was_deleted(tmp_path):
    lacks = '{"valid_from":""}'
    assert versions(
        tmp_path,
        (10, "insert", 1, "long"),
        (20, "update", 1, None, lacks),
        (30, "delete", 1),
        (40, "insert", 1, None),
        (50, "update", 1, None, lacks),
    ) == [(1, "long", 10, 30), (1, None, 40, None)]


@pytest.mark.parametrize(
    ("source", "added"),
    [
        (
            {"type": "postgres_cdc", "connection": "c", "table": "a.b", "publication": "p", "slot": "s"},
            {"operation_in_source", "lsn_in_source", "sequence_in_source"},
        ),
        ({"type": "debezium", "from": {"type": "files", "path": "film/*.jsonl"}}, {"position_in_source"}),
    ],
)
def test_the_history_of_each_log_has_the_columns_that_its_versions_are_made_of(tmp_path, source, added):
    block = {"keys": ["id"], "history": True}
    spec = PipelineSpec.model_validate(
        {"name": "film", "source": source, "columns": {"id": "int", "title": "string"}, "table": block}
    )
    pipeline = declared_pipeline(DeclaredTables(spec=spec, contract_of=lambda name: pytest.fail(name)))
    (stage,) = pipeline.derived
    assert stage.versions is not None
    assert stage.versions.columns == ("id", "title")
    common = {"change_in_source", "unavailable_in_source", "committed_at_in_source", "_offset", "_batch_id"}
    assert set(stage.table.names) == {"id", "title", *common, *added}
    assert (stage.table.merge_key, stage.inputs, stage.rejects) == (("_offset",), ("film_source",), None)
    write_deltalake(str(tmp_path), data_file_schema(stage.table).empty_table())
    query = QueryBuilder(ENGINE_SETTINGS).register("film_history", DeltaTable(str(tmp_path)))
    assert pa.RecordBatchReader.from_stream(query.execute(stage.versions.sql())).read_all().num_rows == 0


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"source": {"type": "http"}}, "the source is http"),
        ({"columns": {"id": "int", "sequence_in_source": "int"}}, "sequence_in_source is one of the history"),
        ({"transforms": [{"type": "sql", "select": "SELECT * FROM input"}]}, r"transforms.0 \(sql\)"),
    ],
)
def test_a_declaration_that_cannot_have_a_history_says_why(changes, problem):
    source = {"type": "postgres_cdc", "connection": "c", "table": "a.b", "publication": "p", "slot": "s"}
    spec = {"name": "film", "source": source, "columns": {"id": "int"}}
    with pytest.raises(ValueError, match=problem):
        PipelineSpec.model_validate({**spec, "table": {"keys": ["id"], "history": True}, **changes})
