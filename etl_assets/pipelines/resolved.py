"""A declaration with all its defaults, and the tables that follow from it, as JSON has them.

Belongs here: what `etl-assets pipelines show` prints. Texts that name environment variables are as the file
has them, so that no value of one is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etl_assets.contracts.columns import TableContract
from etl_assets.pipelines.declared import ContractOf, DeclaredTables
from etl_assets.pipelines.pipeline_file import PipelineFile
from etl_assets.pipelines.problem import Path
from etl_assets.pipelines.transform_specs import RECORDS


def resolved(file: PipelineFile, contract_of: ContractOf) -> dict[str, Any]:
    """Return the declaration of a file without problems, and its tables with their columns."""
    spec = file.spec
    if spec is None:
        raise ValueError(f"{file.path} has problems")
    declaration = spec.model_dump(mode="json", by_alias=True)
    for path, text in file.written.items():
        _put(declaration, path, text)
    declaration["table"]["name"] = spec.table_name
    for column in declaration["columns"].values():
        column["type"] = column["type"].lower()
    declaration["transforms"] = _with_inputs(declaration["transforms"])
    tables = DeclaredTables(spec=spec, contract_of=contract_of)
    return {
        "declaration": declaration,
        "tables": [_table(each) for each in tables.all],
    }


def _with_inputs(transforms: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return transforms that name their inputs, but for those that take the rows of one without a name."""
    names = [RECORDS, *(each["name"] for each in transforms)]
    shown = []
    for above, each in zip(names[:-1], transforms, strict=True):
        inputs = each["inputs"] or ([] if above is None else [above])
        whole = {**each, "inputs": inputs}
        shown.append({name: value for name, value in whole.items() if name != "inputs" or inputs})
    return shown


def _put(value: Any, path: Path, text: str) -> None:
    for part in path[:-1]:
        value = value[part]
    value[path[-1]] = text


def _table(contract: TableContract) -> dict[str, Any]:
    return {
        "name": contract.name,
        "description": contract.description,
        "keys": [*contract.merge_key],
        "columns": [
            {
                "name": column.name,
                "type": column.type.lower(),
                "required": not column.nullable,
                "description": column.description,
            }
            for column in contract.columns
        ],
    }
