"""Generate docs/pipelines.md from the model of a declaration.

Belongs here: the form of a block in Markdown, and the page's examples. Does not belong here: the meaning of a
field, which stands in the model.

`python -m etl_assets.pipelines_documentation > docs/pipelines.md` writes the page; a test fails when it is
stale.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from etl_assets.markdown_table import markdown_table
from etl_assets.pipelines.json_schema import pipeline_schema
from etl_assets.schedules_documentation import SCHEDULES

_BLOCKS = {
    "source": (
        "FilesSource",
        "HttpSource",
        "KafkaSource",
        "SqlSource",
        "PostgresCdcSource",
        "DebeziumSource",
        "TableSource",
    ),
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
    "table": ("TableSpec", "PartitionBy", "ScheduleSpec"),
    "sinks": (
        "MaxLagSpec",
        "PostgresSinkSpec",
        "DuckdbSinkSpec",
        "FolderSinkSpec",
        "ObjectStoreSinkSpec",
        "KafkaSinkSpec",
        "CreateTopicSpec",
        "SearchSinkSpec",
        "WebhookSinkSpec",
        "CallMethods",
    ),
}
_TITLES = {
    "FilesSource": "`source`, type `files`",
    "HttpSource": "`source`, type `http`",
    "KafkaSource": "`source`, type `kafka`",
    "SqlSource": "`source`, type `sql`",
    "PostgresCdcSource": "`source`, type `postgres_cdc`",
    "DebeziumSource": "`source`, type `debezium`",
    "TableSource": "`source`, type `table`",
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
    "ScheduleSpec": "`schedule`",
    "PartitionBy": "`partition_by` of `table`",
    "MaxLagSpec": "`max_lag` of a sink",
    "PostgresSinkSpec": "`sinks[]`, type `postgres`",
    "DuckdbSinkSpec": "`sinks[]`, type `duckdb`",
    "FolderSinkSpec": "`sinks[]`, type `folder`",
    "ObjectStoreSinkSpec": "`sinks[]`, type `object_store`",
    "KafkaSinkSpec": "`sinks[]`, type `kafka`",
    "CreateTopicSpec": "`create` of `kafka`",
    "SearchSinkSpec": "`sinks[]`, type `search`",
    "WebhookSinkSpec": "`sinks[]`, type `webhook`",
    "CallMethods": "`methods` of a webhook",
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
    "PartitionBy": """\
table:
  keys: [supplier_id]
  partition_by: {column: updated_at, by: month}""",
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
  `<table>_rejects`. Each [sink](sinks.md) adds `<table>_to_<sink>` and `<table>_to_<sink>_rejects`. A table with `write_mode: apply_changes` has `<table>_tombstones` too. None of these names may be taken by another
  pipeline or by the platform.
- `lookup` and a source of type `table` may name tables of built-in pipelines and of other files. They may not go in a circle.
- Built-in pipelines can be [left out](operations.md#leave-the-orders-out): their names are free then.
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

In any case of letters. A value of another form is a dead letter; the file's own quotes and types matter little, as CSV has texts only.

| type | values |
| --- | --- |
| `string` | a text as it is; another value as its JSON text |
| `int`, `bigint` | a whole number in range, or a text of one |
| `decimal(18,2)` | a number with at most so many digits, or a text of one; it is never rounded |
| `double` | a number, or a text of one; not for keys, and sums of it depend on their order: prefer a decimal |
| `boolean` | true or false, or a text of one in any case |
| `date` | `2026-01-31` |
| `timestamp` | `2026-01-31T12:00:00Z`, or without zone in UTC, also with a space in place of the `T`; a JSON number is milliseconds since 1970 |
| `array<…>`, `map<…, …>`, `struct<name: …>` | a JSON value of that form |

A field that is missing or null has no value; in CSV `null_value` has none.

## What becomes of a record

1. A file is read once it has settled, and each of its versions once. A record is **accepted** into `<name>_source`, once: by its `id`, or without
   one by its file, its place in the file and its content. A file that has grown adds its new records. The same id with
   other content is a conflict, a dead letter.
2. Its columns are taken from it, then the transforms are applied to all new records together. `input` in SQL, and the frame of a Python function,
   are the new records: a sum over them is not a sum over the table. Both must keep the column `_offset`, which `select *` does.
3. Of each key the table keeps one row, by `write_mode`. Its column `_offset` is that of the record it is from, and `_batch_id` the version
   of the table that wrote it.

Of the figures of a run, `read`, `rejected` and `filtered` count records, and `inserted`, `updated` and `ignored` rows.

Running anything again, or after a kill, changes nothing. Without `sequence_by` the row that arrived last wins; with it the row with the highest
value, and of equal ones the one that arrived last.

## Branches

A transform takes the rows of the one above it. With `inputs` it takes those of other transforms above, by their `name`, or of `records`, which
are the records with their columns before any transform. The last transform makes the rows of the table. Here payments and refunds are
treated apart and come together again:

```yaml
transforms:
  - {type: filter, name: paid, inputs: [records], where: "kind = 'payment'"}
  - {type: filter, name: refunds, inputs: [records], where: "kind = 'refund'"}
  - type: map
    name: negative
    columns:
      amount: {expression: "-amount", type: "decimal(18,2)"}
  - type: expectations
    inputs: [paid, negative]
    rules:
      - {name: has_order, condition: "order_id is not null", on_violation: drop}
```

- Of several inputs a transform takes all rows, with their columns by name. A column that one of them lacks is null in its rows; one that has
  different types in two of them is a problem. A `sql` transform selects from each of several inputs by its name, for joins, and says in
  `columns` what it makes:

  ```yaml
  - type: sql
    inputs: [paid, refunds]
    select: select p.*, r.amount as refunded from paid p left join refunds r on r.order_id = p.order_id
    columns: {order_id: bigint, kind: string, amount: "decimal(18,2)", refunded: "decimal(18,2)"}
  ```

  It joins new records with new records; earlier ones are in tables. In its text an input hides a table of the same name.
- Every branch leads to the last transform: one whose rows nothing takes is a problem.
- A record may have rows on several branches. If one of them is rejected, the record is a dead letter, one however many are rejected, and
  its other rows stay. A record is filtered if a filter leaves out a row of it and nothing else becomes of it. One that is left out on
  one branch and kept on another one is not filtered, nor is one that `sql` takes on another one, as the other side of a join. With
  `append` each record may have one row at the end.
- Rows that several transforms take are computed once.

## Pipelines that build on each other

The tasks of a larger DAG are pipelines: a source of type `table` follows the table of another pipeline, with its deletes. Several pipelines may
follow one table, each at its own pace, and `lookup` and `sql` read any number of tables. One that fails stops only those that follow its table,
and they go on when it does. See [Tables of other pipelines](sources.md#tables-of-other-pipelines).

## Deletes

With `write_mode: apply_changes` records are changes of rows, such as an export of a database's changes has them:

```yaml
table:
  write_mode: apply_changes
  keys: [customer_id]
  sequence_by: changed_at
  apply_as_deletes: "op = 'D'"
  apply_as_truncates: "op = 'T'"
  except_column_list: [op]
```

- Of each key the change with the highest `sequence_by` stands, over everything that ever arrived; of equal ones the one that arrived last.
  If it is a delete the table has no row of the key. The order of arrival has no meaning, nor have repeats: a late change has no effect, a
  late upsert brings no deleted row back, and a newer one does.
- A truncate removes every row that is older than itself, and makes every change late that is.
- A delete needs its keys and `sequence_by`, a truncate `sequence_by` only. `required`, rules, types and expectations of other columns do not
  reject it where the condition can be read from the columns at that point: name columns of the records in it, and not only such as
  transforms make. A `filter` applies to deletes too.
- A change without `sequence_by` is a dead letter: nothing says which change is newer. A condition that is null is not met.
- Without `sequence_by` in the declaration changes apply in the order of arrival.
- Where one record makes several rows with one key (`sql`, `python`), a delete among them stands.
- `<table>_tombstones` has the newest delete of each key, and the newest truncate with null in place of the keys, for as long as the table is
  there ([decision](decisions/0038-tombstones.md)). It is written before the rows. A run that reads everything again replaces it: after a
  change of the conditions `etl-assets reprocess` leaves nothing of the former ones.

## Dead letters

Records that are no records, have a value of the wrong type, break a rule or do not meet an expectation with `on_violation: drop` are
[dead letters](operations.md#dead-letters), under the name of the table that did not take them. `etl-assets dead-letters show ID --raw` prints the
record. `replay ID --record FILE` hands in a corrected one: one JSON object on one line with the source's field names, also where the source is CSV.
It is a new record, arrives last, and takes the whole way; replayed as it came, it may be accepted after the declaration was changed.

## Changing a declaration

A change applies to records from then on. `etl-assets reprocess --tables TABLE --yes` makes all rows of the table again from the accepted records.

| change | what happens |
| --- | --- |
| a new column | stored rows have null there, until they are made again |
| a column is left out | it stays; rows have null there from then on |
| a wider type: `int` to `bigint`, more digits | the table's column is widened |
| another type, other `partition_by` | the run is refused, and names `reprocess`, which makes the table with the new columns |
| other rules, transforms or conditions for deletes | new records; `reprocess` for the others |
| `upsert` to `apply_changes` | new records; stored rows without `sequence_by` are older than any change |
| `apply_changes` to another mode | `<table>_tombstones` stays in its folder, and late changes are no longer known as such |
| other `keys` | `reprocess`: stored rows keep their former keys |
| another `id` | records that were accepted before are not compared by it |
| another name of the pipeline or table | a new pipeline or table; the former tables stay in their folders |
| the file is removed | its tables stay in their folders, its open dead letters in the list |

Editors of the file need no downtime: a run uses the declaration as it begins, a worker takes it up, and the UI shows it within seconds.
"""


def render() -> str:
    """Return the whole page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    schema = pipeline_schema()
    yield _INTRODUCTION
    yield _RULES
    yield f"{SCHEDULES}\n## Top level\n"
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
        first, *others = (_type(each, definitions) for each in options)
        return f"{first} or block" if "block" in others else first
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
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


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
