"""SQL text: names, strings and numbers quoted for Spark SQL so that they mean nothing else.

Belongs here: quoting. Does not belong here: any statement or expression (`rules.py`, `spark_types.py`).
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from etl_assets.errors import ContractError


def identifier(name: str) -> str:
    """Quote a column or table name in backticks."""
    return f"`{name.replace('`', '``')}`"


def delta_table(path: Path) -> str:
    """Return the SQL name of the Delta table in a folder.

    Raises:
        ContractError: the path contains `${`, which Spark would replace by a setting's value even in
            backticks.
    """
    if "${" in str(path):
        raise ContractError(
            f"a table cannot be kept in {str(path)!r}",
            fix="use a path without '${', which Spark SQL takes for a variable",
            location=str(path),
        )
    return f"delta.{identifier(str(path))}"


def string_literal(text: str) -> str:
    r"""A string in single quotes.

    Everything with a meaning of its own inside a literal is written as `\uXXXX`: quote and backslash, control
    characters, and the dollar sign, because Spark replaces `${name}` anywhere in a statement by a setting's
    value. So the text can never end the literal, under any parser setting.
    """
    return "'" + "".join(map(_literal_character, text)) + "'"


def number_literal(number: int | Decimal) -> str:
    """Format a whole number or an exact decimal.

    The result never has exponent form, which Spark would read as a double.
    """
    return format(number, "f") if isinstance(number, Decimal) else str(number)


def _literal_character(character: str) -> str:
    return f"\\u{ord(character):04x}" if character in "'\"\\$" or ord(character) < 0x20 else character
