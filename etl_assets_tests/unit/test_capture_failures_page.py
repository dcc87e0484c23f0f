"""The guide's table of failures of captures names errors, words, runbook entries and tests that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from etl_assets import errors

ROOT = Path(__file__).parents[2]
SOURCES = ("etl_assets/sources/captures", "etl_assets/sources/postgres_cdc")
HEADING = "## What goes wrong, what happens, what to do"
_, _, _AFTER = (ROOT / "docs" / "change-data-capture.md").read_text("utf-8").partition(f"{HEADING}\n")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in _AFTER.partition("\n## ")[0].splitlines()
    if line.startswith("|") and "| shown by |" not in line and "---" not in line
]
QUOTES = [quote for row in ROWS for quote in re.findall(r'"([^"]+)"', row[3])]


def texts(node: ast.AST) -> Iterator[str]:
    """Yield the texts in a piece of code, with `…` for what is put in."""
    match node:
        case ast.JoinedStr():
            yield "".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values)
        case ast.Constant(value=str() as text):
            yield text
        case _:
            for each in ast.iter_child_nodes(node):
                yield from texts(each)


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for folder in SOURCES:
        for path in sorted((ROOT / folder).glob("*.py")):
            yield path, ast.parse(path.read_text("utf-8"))


def says(quote: str, text: str) -> bool:
    """Return whether a text has the words of a quote, which are in one order and may leave something out."""
    return re.search(".*".join(map(re.escape, quote.split("…"))), text, re.DOTALL) is not None


def raised() -> Iterator[tuple[str, str]]:
    """Yield where an error is made, and its message."""
    named = {name for name, each in vars(errors).items() if isinstance(each, type)} | {"_refused"}
    for path, module in modules():
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in named:
                place = 1 if node.func.id == "_refused" else 0
                message = list(texts(node.args[place])) if len(node.args) > place else []
                if message and message[0] != "…":
                    yield f"{path.name}:{node.lineno}", message[0]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_errors_and_a_runbook_entry_and_a_test_that_exist(row):
    _, _, error, words, link, shown = row
    for name in re.findall(r"`(\w+)`", error):
        assert hasattr(errors, name), name
    assert bool(words) == (error != "none")
    runbook = (ROOT / "docs" / "operations.md").read_text("utf-8")
    headings = {
        re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-")
        for each in re.findall(r"^#+ (.+)$", runbook, re.MULTILINE)
    }
    assert link.partition("#")[2].rstrip(")") in headings
    path, _, test = shown.strip("`").partition("::")
    assert f"\ndef {test}(" in (ROOT / path).read_text("utf-8")


@pytest.mark.parametrize("quote", QUOTES)
def test_the_words_of_an_error_are_in_the_code(quote):
    assert any(says(quote, text) for _, module in modules() for text in texts(module))


def test_every_error_of_a_capture_is_in_the_table():
    missing = [place for place, message in raised() if not any(says(quote, message) for quote in QUOTES)]
    assert missing == []
