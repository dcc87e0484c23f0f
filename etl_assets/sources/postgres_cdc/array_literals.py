"""Texts of PostgreSQL's arrays, such as `{1,NULL,"a b"}`, as lists of texts.

Belongs here: the text form that `array_out` writes. Does not belong here: what the elements mean.
"""

from __future__ import annotations

import re

_BOUNDS = re.compile(r"(\[[+-]?\d+:[+-]?\d+\])+=")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class NotOneList(ValueError):
    """An array of several dimensions, or no array at all."""


def elements(text: str, delimiter: str = ",") -> list[str | None]:
    """Return the elements of an array of one dimension; its bounds are left out.

    Raises:
        NotOneList: it has several dimensions, or is no text of an array.
    """
    body = _BOUNDS.sub("", text, count=1) if text.startswith("[") else text
    if len(body) < 2 or body[0] != "{" or body[-1] != "}":
        raise NotOneList("it is not the text of an array")
    body = body[1:-1]
    if not body:
        return []
    if '"' not in body and "\\" not in body:
        if "{" in body:
            raise NotOneList("it has several dimensions")
        return [None if each == "NULL" else each for each in body.split(delimiter)]
    return _quoted(body, delimiter)


def _quoted(body: str, delimiter: str) -> list[str | None]:
    """Return the elements where some are in quotes."""
    element = re.compile(
        rf'"((?:[^"\\]|\\.)*)"(?={re.escape(delimiter)}|$)'
        rf"|((?:[^{re.escape(delimiter)}\"{{}}\\]|\\.)+)(?={re.escape(delimiter)}|$)",
        re.DOTALL,
    )
    found: list[str | None] = []
    at = 0
    while True:
        matched = element.match(body, at)
        if matched is None:
            dimensions = body.startswith("{", at)
            raise NotOneList("it has several dimensions" if dimensions else "it is not the text of an array")
        quoted, plain = matched.groups()
        if quoted is not None:
            found.append(_ESCAPED.sub(r"\1", quoted))
        else:
            found.append(None if plain == "NULL" else _ESCAPED.sub(r"\1", plain))
        at = matched.end()
        if at == len(body):
            return found
        at += len(delimiter)
