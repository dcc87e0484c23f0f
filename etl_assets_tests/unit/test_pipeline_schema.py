"""The published JSON Schema and the page about declarations say what the model says."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from etl_assets import pipelines_documentation
from etl_assets.pipelines.json_schema import pipeline_schema, schema_text
from etl_assets.pipelines.pipeline_file import parse_pipeline
from etl_assets.pipelines.starting_file import starting_file
from etl_assets.pipelines.yaml_tree import read_tree

DOCS = Path(__file__).parents[2] / "docs"
VALIDATOR = jsonschema.Draft202012Validator(pipeline_schema())
SCHEMA = pipeline_schema()
GOOD = """\
name: suppliers
source: {type: files, path: "a/*.csv", id: [number]}
columns:
  number: bigint
  country: {type: string, from: Country, one_of: [DE, FR]}
transforms:
  - {name: positive, type: filter, where: "number > 0"}
  - {name: others, inputs: [records], type: filter, where: "number <= 0"}
  - {inputs: [positive, others], type: map, columns: {twice: {expression: "number * 2", type: bigint}}}
  - {type: sql, select: "select * from input", columns: {number: bigint, country: string, at: timestamp}}
  - {type: python, function: "shop.clean:clean", batches: true}
  - {type: lookup, table: regions, on: {country: code}, columns: {region: name}}
  - {type: expectations, rules: [{name: a, condition: "number > 1", on_violation: drop}]}
table: {keys: [number], sequence_by: at, partition_by: {column: at, by: hour}}
"""


def is_valid(text: str) -> bool:
    return VALIDATOR.is_valid(read_tree(text.encode()).value)


def examples() -> list[str]:
    """The example files of the docs, the one that `new` writes, and one with every transform."""
    page = (DOCS / "pipelines.md").read_text("utf-8")
    blocks = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    return [
        GOOD,
        starting_file("suppliers", None, Path("/home")),
        *(block for block in blocks if "\nname: " in block),
    ]


def test_the_schema_is_a_schema_of_its_draft():
    VALIDATOR.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["title"]
    assert "$id" not in SCHEMA


def test_there_are_three_examples():
    assert len(examples()) == 3


@pytest.mark.parametrize("text", examples())
def test_the_schema_and_the_model_accept_every_example(text):
    assert list(VALIDATOR.iter_errors(read_tree(text.encode()).value)) == []
    assert parse_pipeline(text.encode(), Path("x.yaml")).problems == ()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("name: suppliers", "name: Suppliers"),
        ("name: suppliers\n", ""),
        ("type: files", "type: file"),
        ('path: "a', 'pth: "a'),
        ("number: bigint\n", "Number: bigint\n"),
        ("from: Country", "form: Country"),
        ("type: filter", "type: fliter"),
        ("keys: [number]", "keys: number"),
        ("table: {keys: [number]", "table: {write_mode: replace, keys: [number]"),
        ("on_violation: drop", "on_violation: dropp"),
        ("on: {country: code}", "on: {Country: code}"),
        ("inputs: [records]", "inputs: []"),
        ("inputs: [records]", "inputs: records"),
        ("by: hour", "by: minute"),
        ("{column: at, by: hour}", "{by: hour}"),
    ],
)
def test_the_schema_rejects_what_the_model_rejects(before, after):
    assert is_valid(GOOD)
    wrong = GOOD.replace(before, after)
    assert wrong != GOOD
    assert not is_valid(wrong)
    assert parse_pipeline(wrong.encode(), Path("x.yaml")).problems != ()


def test_the_published_schema_is_the_models():
    assert (DOCS / "pipeline.schema.json").read_text("utf-8") == schema_text(), "write it again: make docs"


def test_the_page_is_what_the_model_says():
    assert (DOCS / "pipelines.md").read_text("utf-8") == pipelines_documentation.render(), (
        "write it again: make docs"
    )


def test_every_field_is_on_the_page_with_its_meaning():
    page = pipelines_documentation.render()
    blocks = [SCHEMA, *(block for block in SCHEMA["$defs"].values() if "properties" in block)]
    names = {name for block in blocks for name in block["properties"]}
    assert len(names) > 30
    assert [name for name in sorted(names) if f"| `{name}` |" not in page] == []
    assert "|  |" not in page
