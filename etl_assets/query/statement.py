"""Turn the text of a SQL statement into one that can only be a query.

The engine would also create tables, read files given by path (`CREATE EXTERNAL TABLE`) and write files (`COPY
… TO`). Its grammar allows such statements only at the beginning of a text and not within parentheses, and it
runs at most one statement of a text. So every statement is passed in parentheses.
"""

from __future__ import annotations

import re

from etl_assets.errors import QueryRefused

_PIECE = re.compile(
    r"""(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*")|(?P<between>--[^\n]*|/\*.*?\*/|\s+)|(?P<end>;)|.""",
    re.DOTALL,
)
LINES_BEFORE = 1
"""Number of lines that `as_query` puts before the statement's first line."""


def beginning(statement: str) -> int:
    """Return the position of the first word, after spaces and comments."""
    return next((piece.start() for piece in _PIECE.finditer(statement) if piece["between"] is None), 0)


def without_end(statement: str) -> str:
    """Return the statement without the semicolons and comments at its end.

    Raises:
        QueryRefused: nothing is left, or the statement is not valid text.
    """
    if any(
        "\ud800" <= character <= "\udfff" for character in statement
    ):  # bytes that Python could not decode
        raise QueryRefused("the statement is not UTF-8", fix="write it in UTF-8")
    end = 0
    for piece in _PIECE.finditer(statement):
        if piece["between"] is None and piece["end"] is None:
            end = piece.end()
    if not end:
        raise QueryRefused("the statement is empty", fix="give a query, such as: SELECT count(*) FROM orders")
    return statement[:end]


def as_query(statement: str, limit: int | None = None) -> str:
    """Return the text to run: the statement in parentheses, limited to `limit` rows.

    The statement has lines of its own, so that a comment in its last line does not hide the parenthesis.
    """
    bound = "" if limit is None else f" LIMIT {limit}"
    return f"(\n{without_end(statement)}\n){bound}"
