"""SQL text: how a name, a string or a number is written into Spark SQL so that it means nothing else.

Belongs here: quoting. Does not belong here: any statement or expression (`rules.py`, `spark_types.py`).
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from etl_assets.errors import ContractError


def identifier(name: str) -> str:
    """A column or table name in backticks."""
    return f"`{name.replace('`', '``')}`"


def delta_table(path: Path) -> str:
    """A Delta table by its folder.

    Raises:
        ContractError: the path holds `${`, which Spark would replace by a setting's value, in backticks as well.
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
    """A whole number or an exact decimal, never in exponent form (which Spark would read as a double)."""
    return format(number, "f") if isinstance(number, Decimal) else str(number)


def _literal_character(character: str) -> str:
    return f"\\u{ord(character):04x}" if character in "'\"\\$" or ord(character) < 0x20 else character
