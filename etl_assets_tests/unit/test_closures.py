"""A nested function finds what it reads in place: no local of the enclosing function that is assigned only
later.

Such a function works by the order of statements that a reader cannot see, and fails with a NameError when it
is called earlier. Loop variables that a function outlives are ruff's to find (B023).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import etl_assets

PACKAGE = Path(etl_assets.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Scope = Function | ast.ClassDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
SCOPES = (*FUNCTIONS, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def parts_of(scope: Scope) -> Iterator[ast.AST]:
    """A scope's own nodes; of nested functions and classes only the statement itself."""
    body = [scope.body] if isinstance(scope, ast.Lambda) else scope.body
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, SCOPES):
            pending += ast.iter_child_nodes(node)
        elif not isinstance(node, ast.Lambda):
            pending += node.decorator_list


def parameters(function: Function) -> set[str]:
    given = function.args
    known = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return {each.arg for each in known if each is not None}


def in_comprehensions(scope: Scope) -> set[int]:
    """The nodes that name variables of comprehensions."""
    return {
        id(name)
        for node in parts_of(scope)
        if isinstance(node, COMPREHENSIONS)
        for generator in node.generators
        for name in ast.walk(generator.target)
    }


def bound(scope: Scope) -> dict[str, int]:
    """The names that statements of a scope bind, with the first line that does."""
    found: dict[str, int] = {}
    own = in_comprehensions(scope)

    def note(name: str, line: int) -> None:
        found[name] = min(line, found.get(name, line))

    for node in parts_of(scope):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if id(node) not in own:
                note(name, node.lineno)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                note(name, node.lineno)
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                note(name, node.lineno)
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    note((alias.asname or alias.name).split(".")[0], node.lineno)
    return found


def outer_names(scope: Scope) -> set[str]:
    """The names that a scope declares global or nonlocal."""
    declared = (node for node in parts_of(scope) if isinstance(node, ast.Global | ast.Nonlocal))
    return {name for node in declared for name in node.names}


def free(scope: Scope) -> set[str]:
    """The names that a nested scope takes from the functions around it."""
    own = {
        name for node in parts_of(scope) if isinstance(node, COMPREHENSIONS) for name in comprehended(node)
    }
    local = set(bound(scope)) - outer_names(scope)
    if isinstance(scope, FUNCTIONS):
        local |= parameters(scope)
    read = {node.id for node in parts_of(scope) if isinstance(node, ast.Name)}
    for node in parts_of(scope):
        if isinstance(node, SCOPES):
            read |= free(node)
    return read - local - own


def comprehended(node: Comprehension) -> set[str]:
    generators = node.generators
    return {name.id for each in generators for name in ast.walk(each.target) if isinstance(name, ast.Name)}


def closures_over_later_names(text: str) -> list[str]:
    found = []
    for function in (node for node in ast.walk(ast.parse(text)) if isinstance(node, FUNCTIONS)):
        local = {name: line for name, line in bound(function).items() if name not in outer_names(function)}
        for name in parameters(function):
            local[name] = function.lineno
        for nested in (node for node in parts_of(function) if isinstance(node, FUNCTIONS)):
            last = nested.end_lineno or nested.lineno
            found += [
                f"line {nested.lineno} reads {name!r}, which line {local[name]} assigns"
                for name in sorted(free(nested) & local.keys())
                if local[name] > last
            ]
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_no_function_closes_over_a_name_that_is_assigned_later(module):
    assert closures_over_later_names(module.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("def f():\n  def g():\n    return later\n  later = 1\n  return g", ["later"]),
        ("def f():\n  g = lambda: later\n  later = 1\n  return g", ["later"]),
        ("def f():\n  def g():\n    return h()\n  def h():\n    return 1\n  return g", ["h"]),
        ("def f():\n  def g():\n    return lambda: later\n  for later in (1, 2):\n    g()", ["later"]),
        ("def f():\n  def g():\n    return [later for _ in ()]\n  with g() as later:\n    pass", ["later"]),
        ("def f():\n  def g():\n    nonlocal later\n    later = 2\n  later = 1\n  return g", ["later"]),
        ("def f():\n  before = 1\n  def g():\n    return before\n  before = 2\n  return g", []),
        ("def f():\n  def g(later):\n    return later\n  later = 1\n  return g", []),
        ("def f():\n  def g():\n    return [later for later in ()]\n  later = 1\n  return g", []),
        ("def f():\n  def g():\n    return g()\n  return g", []),
        ("def f():\n  def g():\n    return later\n  return g\ndef later(): ...", []),
        ("def f():\n  def g():\n    later = 2\n    return later\n  later = 1\n  return g", []),
        ("def f(later):\n  def g():\n    return later\n  later = 1\n  return g", []),
    ],
)  # fmt: skip
def test_what_counts_as_a_later_name(body, names):
    assert [said.split("'")[1] for said in closures_over_later_names(body)] == names
