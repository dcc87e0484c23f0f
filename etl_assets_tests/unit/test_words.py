"""Docstrings and comments keep to the words of the field: the ones that were replaced do not come back."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import etl_assets

PACKAGE = Path(etl_assets.__file__).parent
INSTEAD = {
    "anew": "again",
    "whoever": "the caller, or any process",
    "somebody": "another process",
    "in vain": "without success",
    "untold": "not reported",
    "mend": "fix",
    "mended": "fixed",
    "lest": "so that … not",
    "hand in": "submit a replay",
    "handed in": "submitted as a replay",
    "dealt": "assigned",
}
BANNED = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b", re.IGNORECASE)
CODE = re.compile(r"`[^`]*`")
MODULES = sorted(PACKAGE.rglob("*.py"))


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Docstrings and comments with their lines; names of the code in backticks are left out."""
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, CODE.sub("", node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], CODE.sub("", token.string)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_docstrings_and_comments_use_the_words_of_the_field(module):
    found = [
        f"line {line}: {match[0]!r}, say {INSTEAD[match[0].lower()]!r}"
        for line, text in prose(module.read_text("utf-8"))
        for match in BANNED.finditer(text)
    ]
    assert found == []


def test_no_two_classes_have_one_name():
    names: dict[str, list[str]] = {}
    for module in MODULES:
        for node in ast.parse(module.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                names.setdefault(node.name, []).append(str(module.relative_to(PACKAGE)))
    assert {name: where for name, where in names.items() if len(where) > 1} == {}


def test_no_module_is_longer_than_four_hundred_lines():
    lines = {str(each.relative_to(PACKAGE)): len(each.read_text("utf-8").splitlines()) for each in MODULES}
    assert {name: number for name, number in lines.items() if number > 400} == {}
