"""The JSON Schema of a pipeline file, for editors and other programs.

`python -m etl_assets.pipelines.json_schema > docs/pipeline.schema.json` writes the published copy; a test
fails when it is stale.

Belongs here: what the model's own schema does not say. Does not belong here: validation (`spec.py`).
"""

from __future__ import annotations

import json
import sys
from typing import Any

from etl_assets.pipelines.spec import PipelineSpec

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def pipeline_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a pipeline file."""
    schema = PipelineSpec.model_json_schema()
    definitions = {name: _tidied(each) for name, each in schema.pop("$defs").items()}
    of_type = definitions["ColumnSpec"]["properties"]["type"]
    columns = schema["properties"]["columns"]["patternProperties"]
    for pattern, block in columns.items():
        columns[pattern] = {"anyOf": [{**of_type, "description": "the type of the column"}, block]}
    laid_out_by = definitions["TableSpec"]["properties"]["partition_by"]
    name = {**definitions["PartitionBy"]["properties"]["column"], "description": "the column"}
    laid_out_by["anyOf"] = [name, *laid_out_by["anyOf"]]
    after = definitions["ScheduleSpec"]["properties"]["after"]
    listed = {key: after.pop(key) for key in ("type", "items")}
    after["anyOf"] = [listed, listed["items"]]
    return {
        "$schema": _DRAFT,
        "title": "Pipeline of etl-assets",
        **_without_title(_tidied(schema)),
        "$defs": definitions,
    }


def hints() -> dict[str, Any]:
    """Return the schema as hints for editors: the fields and what they mean. Any value is valid by it.

    For programs that read YAML by other rules, such as Dagster, for which `on` is not a text but true.
    """
    return _hints(pipeline_schema())


def _hints(schema: dict[str, Any]) -> dict[str, Any]:
    known = {
        key: schema[key] for key in ("$schema", "$ref", "title", "description", "default") if key in schema
    }
    for key in ("properties", "$defs"):
        if key in schema:
            known[key] = {name: _hints(each) for name, each in schema[key].items()}
    if "items" in schema:
        known["items"] = _hints(schema["items"])
    if (
        examples := schema.get("examples")
        or schema.get("enum")
        or ([schema["const"]] if "const" in schema else [])
    ):
        known["examples"] = examples
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        known["anyOf"] = [_hints(each) for each in choices]
    return known


def schema_text() -> str:
    """Return the schema as the text of a file."""
    return json.dumps(pipeline_schema(), indent=2, ensure_ascii=False) + "\n"


def _tidied(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block whose fields have no titles: they only repeat the names. Unknown names are refused."""
    fields = {name: _closed(_without_title(each)) for name, each in block.get("properties", {}).items()}
    return {**block, "properties": fields} if fields else block


def _closed(field: dict[str, Any]) -> dict[str, Any]:
    """Refuse names in a mapping that do not have the form of one."""
    if "patternProperties" in field:
        return {**field, "additionalProperties": False}
    if "anyOf" in field:
        return {**field, "anyOf": [_closed(each) for each in field["anyOf"]]}
    return field


def _without_title(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "title"}


if __name__ == "__main__":
    sys.stdout.write(schema_text())
