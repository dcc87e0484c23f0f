"""References to environment variables in a declaration: `${NAME}` in the texts of its source.

Belongs here: replacing them, and which places they are at. Does not belong here: showing their values, which
nothing does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from etl_assets.pipelines.problem import Path, Problem, dotted
from etl_assets.pipelines.yaml_tree import YamlTree

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHORT = 4
"""A value shorter than this is not looked for in messages: it would be in every word."""


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """A declaration whose references are replaced.

    Attributes:
        value: The declaration.
        written: The texts with references, as the file has them, by their place.
        problems: References that cannot be replaced.
    """

    value: Any
    written: Mapping[Path, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    _values: frozenset[str] = field(default=frozenset(), repr=False)

    def is_hidden(self, path: Path) -> bool:
        """Return whether the value at a place, or one below it, is from the environment."""
        return any(each[: len(path)] == path for each in self.written)

    def without_values(self, problem: Problem) -> Problem:
        """Return a problem whose texts do not have a value of the environment."""
        return replace(
            problem,
            message=self._without_values(problem.message),
            fix=self._without_values(problem.fix),
            value=None if problem.value is None else self._without_values(problem.value),
        )

    def _without_values(self, text: str) -> str:
        for value in sorted(self._values, key=len, reverse=True):
            text = text.replace(value, "…")
        return text


def replace_references(tree: YamlTree, read: Callable[[str], str | None]) -> Replaced:
    """Replace the references in the source of a declaration.

    Args:
        tree: The file.
        read: Returns the value of an environment variable; None if it is not set.
    """
    if not isinstance(tree.value, dict) or "source" not in tree.value:
        return Replaced(value=tree.value)
    work = _Replacement(tree, read)
    value = {**tree.value, "source": work.replaced(tree.value["source"], ("source",))}
    return Replaced(
        value=value,
        written=work.written,
        problems=tuple(work.problems),
        _values=frozenset(each for each in work.values if len(each) >= _SHORT),
    )


def reference_names(text: str) -> list[str]:
    """Return the names of the variables that a text refers to."""
    return [found[1] for found in _REFERENCE.finditer(text) if found[1] is not None]


class _Replacement:
    def __init__(self, tree: YamlTree, read: Callable[[str], str | None]) -> None:
        self._tree, self._read = tree, read
        self.written: dict[Path, str] = {}
        self.problems: list[Problem] = []
        self.values: set[str] = set()

    def replaced(self, value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            return {key: self.replaced(each, (*path, key)) for key, each in value.items()}
        if isinstance(value, list):
            return [self.replaced(each, (*path, index)) for index, each in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        self.written[path] = value
        return _REFERENCE.sub(lambda found: self._value(found, path), value)

    def _value(self, found: re.Match[str], path: Path) -> str:
        name = found[1]
        if name is None:
            return "${"
        if not _NAME.fullmatch(name):
            self._wrong(
                path,
                f"`{found[0]}` names no environment variable",
                "letters, digits and `_` in `${…}`; for the text itself: `$${`",
            )
            return found[0]
        if (value := self._read(name)) is None:
            self._wrong(
                path,
                f"the environment variable {name} is not set",
                f"set {name} where the platform runs; for the text itself: `$${{{name}}}`",
            )
            return found[0]
        self.values.add(value)
        return value

    def _wrong(self, path: Path, message: str, fix: str) -> None:
        self.problems.append(Problem(self._tree.line(path), dotted(path), message, fix))
