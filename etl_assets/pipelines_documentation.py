"""Generate docs/pipelines.md from the model of a declaration.

Belongs here: the form of a block in Markdown, and the page's examples. Does not belong here: the meaning of a
field, which stands in the model.

`python -m etl_assets.pipelines_documentation > docs/pipelines.md` writes the page; a test fails when it is stale.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from etl_assets.markdown_table import markdown_table
from etl_assets.pipelines.json_schema import pipeline_schema

_BLOCKS = {
    "source": ("FilesSource",),
    "columns": ("ColumnSpec",),
    "transforms": (
        "FilterTransform",
        "MapTransform",
        "MappedColumn",
        "SqlTransform",
        "PythonTransform",
        "LookupTransform",
        "ExpectationsTransform",
        "Expectation",
    ),
    "table": ("TableSpec",),
}
_TITLES = {
    "FilesSource": "`source`, type `files`",
    "ColumnSpec": "`columns.<name>`",
    "FilterTransform": "`transforms[]`, type `filter`",
    "MapTransform": "`transforms[]`, type `map`",
    "MappedColumn": "`columns.<name>` of `map`",
    "SqlTransform": "`transforms[]`, type `sql`",
    "PythonTransform": "`transforms[]`, type `python`",
    "LookupTransform": "`transforms[]`, type `lookup`",
    "ExpectationsTransform": "`transforms[]`, type `expectations`",
    "Expectation": "`rules[]` of `expectations`",
    "TableSpec": "`table`",
}
_EXAMPLES = {
    "FilterTransform": '- {type: filter, where: "amount > 0"}',
    "MapTransform": """\
- type: map
  columns:
    gross: {expression: "amount * 1.19", type: "decimal(18,2)"}""",
    "SqlTransform": """\
- type: sql
  select: select *, upper(country) as country_code from input
  columns: {supplier_id: bigint, amount: "decimal(18,2)", country_code: string}""",
    "PythonTransform": """\
- {type: python, function: "my_shop.suppliers:clean"}""",
    "LookupTransform": """\
- type: lookup
  table: regions
  on: {country: country_code}
  columns: {region: name}""",
    "ExpectationsTransform": """\
- type: expectations
  rules:
    - {name: is_recent, condition: "updated_at > timestamp '2020-01-01'", on_violation: drop}""",
}
_INTRODUCTION = """\
# Declared pipelines

<!-- Written by `python -m etl_assets.pipelines_documentation > docs/pipelines.md`. -->

A pipeline is a YAML file in the folder `pipelines` of the home folder, one pipeline in a file. Its records come from a source, become the
rows of a table, and are dead letters where they are not accepted.

```yaml
# yaml-language-server: $schema=.schema.json
name: suppliers
source:
  type: files
  path: incoming/suppliers/*.csv
  id: [Number]
columns:
  supplier_id: {type: bigint, from: Number, required: true}
  country: {type: string, one_of: [DE, FR, PL]}
  amount: {type: "decimal(18,2)", at_least: 0}
  updated_at: timestamp
transforms:
  - {type: filter, where: "amount > 0"}
table:
  keys: [supplier_id]
  sequence_by: updated_at
```

`etl-assets pipelines new suppliers --from suppliers.csv` writes such a file from the first records of yours, and
`etl-assets pipelines validate` says what is wrong with it: see [the command](cli.md#pipelines).
"""
_RULES = """\
## Files

- Files that end with `.yaml` or `.yml` are read, in the order of their names; those whose name begins with a dot are not. A link may
  not lead out of the folder.
- A file with problems is not used, and never keeps others from being used. Of two files that want one name, for a pipeline or
  a table, the first by file name has it.
- A pipeline has four tables: `<name>_source` with the accepted records as they came, the table itself, and for each of the two
  `<table>_rejects`. None of these names may be taken by another pipeline or by the platform.
- `lookup` may name tables of built-in pipelines and of other files. Lookups may not go in a circle.
- YAML is read as version 1.2 has it: `on`, `yes` and `no` are texts, and so are days. `*aliases` may repeat a block; `<<` and tags
  are refused. A file has at most 1 MB.

## Environment variables

`${NAME}` in a text under `source` stands for the environment variable `NAME`, for secrets and for what differs between machines. A variable
that is not set, or empty, is a problem of the file. Its value is never shown, neither in problems nor by `pipelines show`. `$${` stands for
`${` itself. Elsewhere in the file, `${` has no meaning.

## Editors

[pipeline.schema.json](pipeline.schema.json) is the JSON Schema of a file; `etl-assets pipelines schema` prints it. `pipelines new` puts a copy
beside the files as `.schema.json`, and the first line of a new file names it: editors with the YAML language server complete and check
fields.

## Types

`string`, `int`, `bigint`, `timestamp`, `date`, `boolean`, `decimal(18,2)`, `array<…>`, `map<…, …>` and `struct<name: …>`, in any case.
Floating point is left out: use a decimal.
"""


def render() -> str:
    """Return the whole page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    schema = pipeline_schema()
    yield _INTRODUCTION
    yield _RULES
    yield "## Top level\n"
    yield from _table(schema, schema["$defs"])
    for name in (each for names in _BLOCKS.values() for each in names):
        block = schema["$defs"][name]
        yield f"## {_TITLES[name]}\n"
        yield f"{block['description']}\n"
        yield from _table(block, schema["$defs"])
        if example := _EXAMPLES.get(name):
            yield f"```yaml\n{example}\n```\n"


def _table(block: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[str]:
    required = block.get("required", ())
    rows = (
        [
            f"`{name}`",
            _type(field, definitions),
            "must be given" if name in required else _default(field),
            _meaning(name, field, definitions),
        ]
        for name, field in block["properties"].items()
    )
    yield from markdown_table(["field", "type", "default", "meaning"], rows)


def _type(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if "$ref" in field:
        block = definitions[field["$ref"].rpartition("/")[2]]
        return _values(block["enum"]) if "enum" in block else "block"
    if "anyOf" in field:
        options = [each for each in field["anyOf"] if each.get("type") != "null"]
        return _type(options[0], definitions)
    if "oneOf" in field:
        return "block"
    if "const" in field or "enum" in field:
        return _values(field.get("enum") or [field["const"]])
    match field["type"]:
        case "array":
            return "list of texts" if field["items"].get("type") == "string" else "list of blocks"
        case "object":
            return "mapping"
        case "boolean":
            return "`true` or `false`"
        case "string":
            return "text"
        case kind:
            bounds = [
                f"{word} {field[key]:,}"
                for key, word in (("minimum", "from"), ("maximum", "to"))
                if key in field
            ]
            return ", ".join(
                ["whole number" if kind == "integer" else "number", *([" ".join(bounds)] if bounds else [])]
            )


def _values(values: list[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _default(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    if value is None or value == [] or value == "":
        return "none"
    return f"`{str(value).lower()}`"


def _meaning(name: str, field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if description := field.get("description"):
        return description
    if "$ref" in field:
        text = " ".join(definitions[field["$ref"].rpartition("/")[2]].get("description", "").split())
        return re.sub(r"[A-Z]{2,}(?=:)", lambda word: f"`{word[0].lower()}`", text)
    if name == "type" and "const" not in field:
        return "the type of the values, see [types](#types)"
    return _MEANINGS.get(name, "")


_MEANINGS = {
    "type": "which kind of block it is; always the first field",
    "name": "its name: lower-case letters, digits and `_`, beginning with a letter",
    "description": "what it is, for people",
}


if __name__ == "__main__":
    sys.stdout.write(render())
