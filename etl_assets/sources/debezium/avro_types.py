"""Values of logical types in Avro, which Connect's converter names by `connect.name`.

Avro's own logical types are decoded already: Connect's decimals, dates and times have these too.

Belongs here: from a schema to the conversion of its values. Does not belong here: the types
(`value_types.py`), and decoding (`sources/kafka/avro_values.py`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from etl_assets.sources.debezium import value_types
from etl_assets.sources.debezium.value_types import Convert

_VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"


def conversion_of(schema: Any, named: Mapping[str, Any]) -> Convert | None:
    """Return how values of a schema are changed; None: they stay as they are.

    Args:
        schema: A schema as fastavro has parsed it.
        named: The named schemas that it may refer to.
    """
    return _conversion(schema, named, frozenset())


def _conversion(schema: Any, named: Mapping[str, Any], inside: frozenset[str]) -> Convert | None:
    if isinstance(schema, str):
        known = schema in named and schema not in inside  # Debezium's own types do not contain themselves
        return _conversion(named[schema], named, inside | {schema}) if known else None
    if isinstance(schema, list):
        # A value of a union has lost its branch: rows and optional values have one beside null.
        found = [each for each in schema if each != "null"]
        return _conversion(found[0], named, inside) if len(found) == 1 else None
    if not isinstance(schema, Mapping):
        return None
    name, type_ = schema.get("connect.name"), schema.get("type")
    if name == _VARIABLE_SCALE:
        return _variable_scale
    if "logicalType" not in schema and type_ in ("int", "long", "string"):
        return value_types.named(name)
    if type_ in ("record", "error"):
        below = inside | {str(schema.get("name"))}
        return value_types.struct(
            {str(each["name"]): _conversion(each["type"], named, below) for each in schema["fields"]}
        )
    if type_ == "array":
        return value_types.array(_conversion(schema["items"], named, inside))
    return _conversion(type_, named, inside) if isinstance(type_, (Mapping, list)) else None


def _variable_scale(value: Any) -> Any:
    content = value.get("value") if isinstance(value, dict) else None
    if isinstance(content, bytes):
        value = {**value, "value": base64.b64encode(content).decode()}
    return value_types.variable_scale_decimal(value)
