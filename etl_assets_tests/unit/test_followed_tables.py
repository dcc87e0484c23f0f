"""What a declaration that follows a table may say, by itself and together with others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etl_assets.built_in import NAMES
from etl_assets.installed import built_in_catalog, contract_in
from etl_assets.pipelines.cross_checks import checked, contracts_of
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.pipelines.followed_tables import needs_former_values
from etl_assets.pipelines.pipeline_file import PipelineFile, parse_pipeline
from etl_assets.pipelines.spec import PipelineSpec
from etl_assets.pipelines.table_owners import in_order_of_reading
from etl_assets.steps.declared_pipeline import declared_pipeline
from etl_assets_tests.sources.followed_tables import CATEGORIES, COPY, RATINGS

BASE = built_in_catalog(NAMES)


def files_of(*specs: dict[str, Any]) -> tuple[PipelineFile, ...]:
    read = [parse_pipeline(json.dumps(each).encode(), Path(f"{each['name']}.yaml"), {}) for each in specs]
    return checked(read, BASE)


def problems_of(*specs: dict[str, Any]) -> dict[str, list[tuple[str, str, str]]]:
    return {
        file.name: [(each.field, each.message, each.fix) for each in file.problems]
        for file in files_of(*specs)
    }


def following(followed: str, name: str = "copies", **more: Any) -> dict[str, Any]:
    return {**COPY, "name": name, "source": {"type": "table", "table": followed}, **more}


def tables_of(spec: dict[str, Any]) -> DeclaredTables:
    files = files_of(RATINGS, spec)
    assert not any(file.problems for file in files)
    declared = files[-1].spec
    assert declared is not None
    return DeclaredTables(spec=declared, contract_of=contract_in(contracts_of(files, BASE)))


def test_tables_of_pipelines_and_their_records_can_be_followed():
    of_records = {"columns": {"record": "string"}, "table": {"keys": ["record"]}}
    of_orders = {"columns": {"event_id": "string"}, "table": {"keys": ["event_id"]}}
    found = problems_of(
        RATINGS,
        COPY,
        CATEGORIES,
        following("copies", "copies_of_copies"),
        following("ratings_source", "records", **of_records),
        following("normalized_orders", "orders_a", **of_orders),
        following("warehouse_rows", "orders_b", **of_orders),
    )
    assert len(found) == 7
    assert not any(found.values())


def test_a_table_that_is_missing_is_a_problem_with_those_that_are_near():
    ((field, message, fix),) = problems_of(RATINGS, following("rating"))["copies"]
    assert (field, message) == ("source.table", "there is no table `rating`")
    assert "did you mean `ratings`?" in fix


@pytest.mark.parametrize("table", ["ratings_rejects", "ratings_tombstones", "replays"])
def test_tables_without_rows_of_a_pipeline_are_not_followed(table):
    ((field, message, _),) = problems_of(RATINGS, following(table))["copies"]
    assert (field, message) == ("source.table", f"`{table}` has no rows of a pipeline to follow")


def test_a_column_that_the_table_lacks_is_a_problem():
    columns = {"film_id": "bigint", "category": {"type": "string", "from": "categry"}}
    ((field, message, fix),) = problems_of(RATINGS, following("ratings", columns=columns))["copies"]
    assert (field, message) == ("columns.category.from", "the table `ratings` has no column `categry`")
    assert fix.startswith("did you mean `category`?")


def test_pipelines_that_follow_each_other_in_a_circle_are_problems_of_those_in_it():
    found = problems_of(
        RATINGS, following("two", "one"), following("three", "two"), following("two", "three"), COPY
    )
    assert "the pipeline two, which has problems" in found["one"][0][1]
    assert "pipelines follow each other in a circle: two → three → two" in found["two"][0][1]
    assert "pipelines follow each other in a circle: three → two → three" in found["three"][0][1]
    assert found["copies"] == []


def test_a_circle_over_a_lookup_is_one_too():
    lookup = {"type": "lookup", "table": "copies", "on": {"film_id": "film_id"}, "columns": {"more": "stars"}}
    found = problems_of({**RATINGS, "transforms": [lookup]}, COPY)
    assert "in a circle" in found["ratings"][0][1]
    assert "in a circle" in found["copies"][0][1]
    assert "in a circle" in problems_of(following("copies"))["copies"][0][1]


def test_a_table_of_a_pipeline_with_problems_is_waited_for():
    broken = {**RATINGS, "columns": {"film_id": "nope"}}
    assert "the pipeline ratings, which has problems" in problems_of(broken, COPY)["copies"][0][1]


def test_rows_that_are_gone_are_deleted_unless_a_column_says_that_they_are():
    spec = PipelineSpec.model_validate(COPY)
    assert (spec.table.write_mode, spec.table.except_column_list) == ("apply_changes", ("deleted_in_source",))
    assert spec.columns["deleted_in_source"].from_ == "table.deleted"
    assert PipelineSpec.model_validate(spec.model_dump(by_alias=True)) == spec
    by_hand = PipelineSpec.model_validate(CATEGORIES)
    assert "deleted_in_source" not in by_hand.columns
    for more, message in (
        ({"table": {"write_mode": "append"}}, "deletes no rows"),
        ({"table": {"keys": ["film_id"], "sequence_by": "stars"}}, "in the order of its versions"),
    ):
        with pytest.raises(ValueError, match=f"{message}.*or take `table.deleted` as a column"):
            PipelineSpec.model_validate({**COPY, **more})


@pytest.mark.parametrize(
    ("more", "former"),
    [
        ({}, False),
        ({"transforms": [{"type": "map", "columns": {"stars": {"expression": "1", "type": "int"}}}]}, False),
        ({"transforms": [{"type": "filter", "where": "stars > 3"}]}, True),
        ({"transforms": [{"type": "map", "columns": {"film_id": {"expression": "1", "type": "int"}}}]}, True),
        ({"table": {"keys": ["film_id", "category"]}}, True),
        ({"columns": {"film_id": {"type": "string", "from": "category"}}}, True),
        ({"columns": {"film": {"type": "bigint", "from": "film_id"}}, "table": {"keys": ["film"]}}, False),
    ],
)  # fmt: skip
def test_former_values_are_records_where_the_new_row_may_not_replace_them(more, former):
    assert needs_former_values(tables_of({**COPY, **more})) is former


def test_the_records_come_after_the_followed_table():
    source, load = declared_pipeline(tables_of(COPY)).path
    assert (source.follows, source.inputs, load.inputs) == (("ratings",), (), ("copies_source",))


def test_pipelines_come_after_those_whose_tables_they_read():
    lookup = {"type": "lookup", "table": "zones", "on": {"stars": "id"}, "columns": {"zone": "id"}}
    zones = {
        "name": "zones",
        "source": {"type": "files", "path": "zones/*.csv"},
        "columns": {"id": "int"},
        "table": {"keys": ["id"]},
    }
    files = files_of(following("copies", "a"), {**COPY, "transforms": [lookup]}, RATINGS, zones)
    assert not any(file.problems for file in files)
    assert [file.name for file in in_order_of_reading(files)] == ["ratings", "zones", "copies", "a"]
