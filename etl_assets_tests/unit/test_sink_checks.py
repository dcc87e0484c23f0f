"""What `pipelines validate` says of sinks and the table that they follow."""

from __future__ import annotations

import re

import pytest

from etl_assets.pipelines.connection_rights import ConnectionRights
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


@pytest.mark.parametrize(
    ("source", "type_"),
    [
        ('type: files, path: "in/*.csv", id: [id]', "object_store"),
        ("type: kafka, topic: films, id: [id]", "kafka"),
        ("type: sql, query: SELECT 1 AS id, load: full, id: [id]", "postgres"),
        ("type: sql, query: SELECT 1 AS id, load: full, id: [id]", "sql"),
    ],
)
def test_a_source_needs_its_connection(source, type_):
    text = PIPELINE.replace("TRANSFORMS", "").replace("TABLE", KEYED).replace("SINK", SEARCH)
    text = re.sub("^source: .*", f"source: {{{source}, connection: sea}}", text, flags=re.MULTILINE)

    def right(name: str, type_: str) -> ConnectionRights:
        return ConnectionRights(name=name, type=type_, write=(), allows=lambda _: True)

    others = [right("warehouse", "postgres"), right("engine", "search"), right("sea", "webhook")]
    (file,) = checked([parsed(text)], BASE, [*others, right("see", type_)])
    ((line, field, fix),) = [(each.line, each.field, each.fix) for each in file.problems]
    assert (line, field) == (3, "source.connection")
    assert "did you mean `see`?" in fix
    (file,) = checked([parsed(text)], BASE, [*others[:2], right("sea", type_)])
    assert file.problems == ()


@pytest.mark.parametrize(
    "source",
    [
        'path: "in/*.csv", manifest: m.json',
        'path: "/in/*.csv", connection: sea',
        'path: "~/in/*.csv", connection: sea',
        'path: "in//*.csv", connection: sea',
        'path: "in/*.csv", connection: sea, manifest: "../m.json"',
        'path: "s3://bucket/in/*.csv", connection: sea',
    ],
)
def test_places_of_an_object_store_are_below_its_root(source):
    text = PIPELINE.replace("TRANSFORMS", "").replace("TABLE", KEYED).replace("SINK", SEARCH)
    file = parsed(text.replace('path: "landing/*.csv"', source))
    assert [each.line for each in file.problems] == [3]
