"""Types of fields that several blocks of a declaration have."""

from __future__ import annotations

import difflib
import re
from decimal import Decimal
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
)

from etl_assets.contracts import column_types
from etl_assets.errors import ContractError

NAME_PATTERN = r"[a-z][a-z0-9_]*"
"""Names of pipelines, tables and columns. A leading underscore is the platform's own."""
MAX_NAME_CHARACTERS = 64


class Spec(BaseModel):
    """A block of a declaration: immutable, and an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


_MAX_TYPE_CHARACTERS = 1_000
_TYPES = (
    "use string, int, bigint, double, timestamp, date, boolean, decimal(18,2), array<…>, map<…, …> or"
    " struct<name: …>"
)
_OTHER_WORDS = {
    "integer": "int",
    "smallint": "int",
    "long": "bigint",
    "int64": "bigint",
    "text": "string",
    "str": "string",
    "varchar": "string",
    "uuid": "string",
    "bool": "boolean",
    "datetime": "timestamp",
    "timestamptz": "timestamp",
    "decimal": "decimal(18,2)",
    "numeric": "decimal(18,2)",
    "number": "decimal(18,2)",
    "float": "double",
    "list": "array<string>",
}
"""What types are called elsewhere."""


def _column_type(value: str) -> str:
    if len(value) > _MAX_TYPE_CHARACTERS:
        raise ValueError(f"a type of more than {_MAX_TYPE_CHARACTERS:,} characters; make it simpler")
    try:
        return column_types.canonical(value)
    except ContractError as error:
        word = re.split(r"[(<\s]", value.strip().lower())[0]
        meant = _OTHER_WORDS.get(word) or next(
            iter(difflib.get_close_matches(word, [each.lower() for each in column_types.SCALARS], n=1)), None
        )
        near = f"did you mean `{meant}`? " if meant else ""
        raise ValueError(f"it is not a type of a column; {near}{_TYPES}") from error


Name = Annotated[
    str, Field(pattern=f"^{NAME_PATTERN}$", max_length=MAX_NAME_CHARACTERS, examples=["suppliers"])
]
"""A name of lower-case letters, digits and underscores that begins with a letter."""
TypeName = Annotated[
    str, AfterValidator(_column_type), Field(examples=["string", "bigint", "decimal(18,2)", "timestamp"])
]
"""A column type, as SQL writes it, in any case."""
Number = Annotated[Decimal, Field(max_digits=column_types.MAX_DECIMAL_PRECISION)]
SqlText = Annotated[str, Field(min_length=1, description="Spark SQL")]
OutputColumns = Annotated[
    dict[Name, TypeName] | None,
    Field(min_length=1, description="columns of the result and their types; by default as before"),
]
