"""Errors of the SQL engine about a statement, converted to the platform's: one plain line, and the fix.

The texts are those of the engine in the locked deltalake. An unknown text is passed on without the engine's
prefixes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from etl_assets.errors import EtlAssetsError, FilesGone, NotFound, QueryRefused, StorageFailed
from etl_assets.query.statement import LINES_BEFORE, beginning, without_end

_TABLE = re.compile(r"table 'datafusion\.(?:public\.)?(?P<name>.+)' not found", re.DOTALL)
_TABLE_FUNCTION = re.compile(r"table function '(?P<name>.+)' not found", re.DOTALL)
_COLUMN = re.compile(r"No field named (?P<name>.+?)\.(?:\s|$)", re.DOTALL)
_COLUMNS = re.compile(r"Valid fields are (?P<names>.+)\.\s*$", re.DOTALL)
_SYNTAX = re.compile(
    r'(?:Parser|Tokenizer)Error\("(?P<what>.+?)(?: at Line: (?P<line>\d+), Column: (?P<column>\d+))?"\)',
    re.DOTALL,
)
_EXPECTED = re.compile(r"Expected:? (?P<expected>.+), found: (?P<found>.*)", re.DOTALL)
_NO_QUERY = re.compile(r"Expected: SELECT, VALUES, or a subquery in the query body, found: (?P<word>\S+)")
_WRITES = re.compile(
    r"Query (?P<word>\w+) .*not implemented yet|Unsupported logical plan: CreateMemoryTable", re.DOTALL
)
_PREFIXES = re.compile(
    r"^(?:(?:Error during planning|Schema error|SQL error|External error|Execution error|Internal"
    r" error|Arrow error|"
    r"This feature is not implemented)[:\s]+)+"
)
_NO_BUG = re.compile(r"^.*?(?=No function matches)", re.DOTALL)
"""Prefix of an error about argument types, which the engine presents as a bug of its own."""
_PREDICATE = re.compile(r'.*Compute error: .*\w+\("(?P<what>.+?)"\).*', re.DOTALL)
_NO_FILE = re.compile(r"Object at location (?P<file>.+?) not found")
_OF_FILES = re.compile(r"Object Store error|ObjectStore|Parquet error|LocalFileSystem")
_MAX_CHARACTERS = 400
_ONLY_QUERIES = "begin with SELECT, WITH or VALUES; tables are written by runs, and by nothing else"
_CORRECT = "correct it there; texts stand in single quotes, names with capitals or spaces in double quotes"


def missing_table(said: str) -> str | None:
    """Return the table that the engine has not been given yet, if that is the error."""
    found = _TABLE.search(said)
    return None if found is None else found["name"]


def unknown_table(name: str, known: Sequence[str], unlisted: Sequence[str] = ()) -> NotFound:
    """Return the error for a table that is not there.

    Args:
        name: Its name.
        known: The tables that there are.
        unlisted: Why there may be others, in sentences.
    """
    near = difflib.get_close_matches(name.rpartition(".")[2], known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    reasons = "".join(f"; {why}" for why in unlisted)
    return NotFound(
        f"there is no table {name!r}{reasons}", fix=f"{hint}the tables are {', '.join(known)}", table=name
    )


def needs_quotes(name: str) -> QueryRefused:
    """Return the error for a table whose name the statement has as a schema and a table."""
    return QueryRefused(
        f"{name} is read as the table {name.rpartition('.')[2]!r} of a schema",
        fix=f'write the name of a table with a dot in double quotes: "{name}"',
        table=name,
    )


def refusal(said: str, statement: str) -> QueryRefused:
    """Return the error for a statement that the engine does not start."""
    if (column := _COLUMN.search(said)) is not None:
        return _unknown_column(column["name"], said, statement)
    if (function := _TABLE_FUNCTION.search(said)) is not None:
        return QueryRefused(
            f"there is no table function {function['name']!r}",
            fix="name a table of the platform after FROM: files and other sources cannot be read",
        )
    if (writes := _WRITES.search(said)) is not None:
        return _no_query(writes["word"] or "SELECT INTO")
    if (syntax := _SYNTAX.search(said)) is not None:
        begins = _NO_QUERY.search(syntax["what"])
        if begins is not None and _place(syntax) == _first_place(statement):
            return _no_query(begins["word"])
        return _syntax_error(syntax, statement)
    return QueryRefused(
        _one_line(said), fix="correct the statement; the functions are those of Apache DataFusion"
    )


def interrupted(said: str, tables: Sequence[str]) -> EtlAssetsError:
    """Return the error for a query that failed while reading."""
    names = " or ".join(tables)
    if (gone := _NO_FILE.search(said)) is not None:
        return FilesGone(
            f"a data file of {names} is gone: {gone['file']}",
            fix="run it again, if the tables were vacuumed or repaired meanwhile; `etl-assets tables verify`"
            " names what is wrong with a mirrored table, else restore the file from a backup",
            table=names,
            missing=[gone["file"]],
        )
    if _OF_FILES.search(said) is not None and _PREDICATE.search(said) is None:
        return StorageFailed(
            f"a data file of {names} cannot be read: {_one_line(said)}",
            fix="look at the disk; of a mirrored table `etl-assets tables verify --contents` names what is"
            " damaged",
            table=names,
        )
    return QueryRefused(_one_line(said), fix="correct the expression, or leave out rows that it fails for")


def _unknown_column(name: str, said: str, statement: str) -> QueryRefused:
    listed = _COLUMNS.search(said)
    valid = [] if listed is None else listed["names"].split(", ")
    owners = {each.rpartition(".")[0] for each in valid}
    names = [each.rpartition(".")[2] for each in valid]
    plain = name.rpartition(".")[2].strip('"')
    near = difflib.get_close_matches(plain, [each.strip('"') for each in names], n=1)
    hints = [f"did you mean {near[0]!r}?"] if near else []
    if f'"{plain}"' in statement:
        hints.append(f"a text stands in single quotes: '{plain}';")
    hints.append(
        f"the columns are {', '.join(names if len(owners) == 1 else valid)}"
        if valid
        else "name a table after FROM"
    )
    return QueryRefused(f"there is no column {name}", fix=" ".join(hints), column=name)


def _no_query(word: str) -> QueryRefused:
    near = difflib.get_close_matches(word.lower(), ("select", "with", "values"), n=1)
    hint = f"did you mean {near[0].upper()}? " if near else ""
    return QueryRefused(
        f"only queries can be run, not {word[:_MAX_CHARACTERS]!r}", fix=f"{hint}{_ONLY_QUERIES}"
    )


def _first_place(statement: str) -> tuple[int, int]:
    """Return line and column of the first word."""
    before = statement[: beginning(statement)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _syntax_error(syntax: re.Match[str], statement: str) -> QueryRefused:
    lines, place = without_end(statement).splitlines(), _place(syntax)
    expected = _EXPECTED.search(syntax["what"])
    at = "" if place is None else f" in line {place[0]}, column {place[1]}"
    if expected is None:
        return QueryRefused(f"syntax error{at}: {_one_line(syntax['what'])}", fix=_CORRECT)
    if expected["found"] == ";":
        return QueryRefused(f"there is a second statement{at}", fix="run one at a time")
    # An end too early or too late shows as an error at the parenthesis that follows the statement.
    wanted = "the end of the statement" if expected["expected"] == ")" else expected["expected"]
    found = repr(expected["found"])
    if place is None or place[0] > len(lines):
        at, found = "", "the end of the statement"
    return QueryRefused(f"syntax error{at}: expected {_one_line(wanted)}, found {found}", fix=_CORRECT)


def _place(syntax: re.Match[str]) -> tuple[int, int] | None:
    return None if syntax["line"] is None else (int(syntax["line"]) - LINES_BEFORE, int(syntax["column"]))


def _one_line(said: str) -> str:
    """Return the last cause in one line, without the engine's remarks about its own parts."""
    cause = _NO_BUG.sub("", _PREDICATE.sub(r"\g<what>", said.rpartition("caused by")[2]))
    text = " ".join(_PREFIXES.sub("", cause.strip()).split())
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
