"""What `pipelines validate` says of sinks and the table that they follow."""

from __future__ import annotations

import pytest

from etl_assets.pipelines.cross_checks import checked
from etl_assets_tests.unit.test_pipeline_file import BASE, parsed

PIPELINE = """
name: suppliers
source: {type: files, path: "landing/*.csv"}
columns: {id: bigint, name: string}
transforms: [TRANSFORMS]
table: TABLE
sinks:
  - {type: postgres, connection: warehouse, table: analytics.suppliers}
  - SINK
"""
SQL = "{type: sql, select: 'select * from input'}"
PYTHON = "{type: python, function: 'my_shop.suppliers:clean'}"
FILTER = "{type: filter, where: 'id > 1'}"
SEARCH = "{type: search, connection: engine, index: suppliers}"
KEYED = "{keys: [id]}"


def problems(
    transforms: str = "", table: str = KEYED, sink: str = SEARCH
) -> list[tuple[int | None, str, str]]:
    text = PIPELINE.replace("TRANSFORMS", transforms).replace("TABLE", table).replace("SINK", sink)
    (file,) = checked([parsed(text)], BASE)
    return [(each.line, each.field, f"{each.message}; {each.fix}") for each in file.problems]


@pytest.mark.parametrize(
    ("transforms", "named"),
    [
        (SQL, "transforms[0] (sql)"),
        (f"{FILTER}, {PYTHON}", "transforms[1] (python)"),
        (
            "{type: filter, where: 'id > 1', name: a, inputs: [records]},"
            " {type: filter, where: 'id < 9', name: b, inputs: [records]},"
            " {type: filter, where: 'true', inputs: [a, b]}",
            "transforms[2] (filter)",
        ),
    ],
)
def test_sinks_of_an_append_table_whose_records_may_have_several_rows_are_refused(transforms, named):
    found = problems(transforms, "{write_mode: append}")
    assert [(line, field) for line, field, _ in found] == [(8, "sinks[0]"), (9, "sinks[1]")]
    for _, _, said in found:
        assert named in said
        assert "`write_mode: insert` or `upsert` with `keys`" in said


@pytest.mark.parametrize(
    ("transforms", "table"),
    [
        ("", "{write_mode: append}"),
        (FILTER, "{write_mode: append}"),
        (SQL, KEYED),
        (PYTHON, "{write_mode: insert, keys: [id]}"),
    ],
)
def test_sinks_of_tables_whose_keys_are_unique_are_not(transforms, table):
    assert problems(transforms, table) == []


def test_a_path_of_a_webhook_names_key_columns_only():
    assert problems(sink="{type: webhook, connection: hooks, path: 'suppliers/{id}'}") == []
    ((line, field, said),) = problems(sink="{type: webhook, connection: hooks, path: 'suppliers/{name}'}")
    assert (line, field) == (9, "sinks[1].path")
    assert "`{name}` is not a key column" in said


@pytest.mark.parametrize(
    "path", ["/films", "films/", "a//b", "a/../b", "..", "a?b=c", "https://host/a", "{a}#", "a b", "{}"]
)
def test_what_is_no_path_is_refused(path):
    (problem,) = problems(sink=f"{{type: webhook, connection: hooks, path: '{path}'}}")
    assert problem[1] == "sinks[1].path"
