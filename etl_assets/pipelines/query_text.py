"""The text of a query: one statement that reads, made safe to stand in parentheses.

The check here is for clear errors. What keeps a query from writing is the read-only transaction that it runs
in.

Belongs here: looking at the text. Does not belong here: running it (`sources/sql/`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from etl_assets.errors import QueryRefused

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*)
    |(?P<string>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*')
    |(?P<name>"(?:[^"]|"")*"|`[^`]*`)
    |(?P<dollar>\$(?:[A-Za-z_][A-Za-z0-9_]*)?\$)
    |(?P<word>[A-Za-z_][A-Za-z0-9_$]*)
    |(?P<mark>[;()'"])""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")
_READS = ("SELECT", "WITH", "VALUES", "TABLE", "(")
_WRITES = ("INSERT", "UPDATE", "DELETE", "MERGE")


def single_query(text: str) -> str:
    """Return a query without the semicolon at its end. Its literals and comments stay as they are.

    Raises:
        QueryRefused: it is empty, more than one statement, or not a query.
    """
    before, first, depth, end = "", "", 0, None
    for token, start in _tokens(text):
        if end is not None and token != ";":
            raise _refused("it is more than one statement", "keep the first; a pipeline has one query")
        if token == ";":
            end = start if end is None else end
            continue
        first = first or token
        depth += (token == "(") - (token == ")")
        if depth < 0:
            raise _refused("it closes a parenthesis that it does not open", "remove the `)`")
        if token in _WRITES and before == "(":
            raise _refused(f"it writes, by {token} in parentheses", "a query of a pipeline only reads")
        before = token
    if not first:
        raise _refused("it is empty", "write a query that begins with SELECT or WITH")
    if first not in _READS:
        raise _refused(f"it begins with {first}", "write a query that begins with SELECT or WITH")
    if depth:
        raise _refused("it does not close a parenthesis", "add the missing `)`")
    return text if end is None else text[:end]


def as_table(query: str) -> str:
    """Return a checked query as a table `q`. The line breaks end a comment on its last line."""
    return f"(\n{query}\n) AS q"


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """Yield words in upper case, parentheses, semicolons, and `literal` for anything quoted."""
    place = 0
    while found := _TOKEN.search(text, place):
        # What stands between two tokens, such as digits and operators, is part of a statement too.
        if text[place : found.start()].strip():
            yield "other", place
        place = found.end()
        match found.lastgroup:
            case "comment":
                place = _end_of_comment(text, place) if found[0] == "/*" else place
            case "dollar":
                place = _end_of_dollar(text, found)
                yield "literal", found.start()
            case "string" | "name":
                yield "literal", found.start()
            case "word":
                yield found[0].upper(), found.start()
            case _ if found[0] in "'\"":
                raise _refused(f"a {found[0]} is not closed", f"add the missing {found[0]}")
            case _:
                yield found[0], found.start()
    if text[place:].strip():
        yield "other", place


def _end_of_comment(text: str, place: int) -> int:
    """Return where a comment ends. Comments nest, as in PostgreSQL."""
    depth = 1
    while depth:
        if (found := _COMMENT_MARK.search(text, place)) is None:
            raise _refused("a comment is not closed", "add the missing `*/`")
        depth += 1 if found[0] == "/*" else -1
        place = found.end()
    return place


def _end_of_dollar(text: str, opening: re.Match[str]) -> int:
    end = text.find(opening[0], opening.end())
    if end < 0:
        raise _refused(f"a text that begins with {opening[0]} is not closed", f"add the missing {opening[0]}")
    return end + len(opening[0])


def _refused(message: str, fix: str) -> QueryRefused:
    return QueryRefused(f"the query cannot be used: {message}", fix=fix)
