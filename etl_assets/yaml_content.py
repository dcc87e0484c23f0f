"""Reading YAML: a repeated field is refused, and an error names its place and, if known, its cause.

Belongs here: YAML of any file. Does not belong here: which fields exist (`settings/platform.py`,
`pipelines/spec.py`), and the tree of a pipeline file (`pipelines/yaml_tree.py`). YAML's own messages may
quote a line, which may hold a secret, so they are not passed on.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from etl_assets.errors import SettingsError

_CAUSES = {
    "found character '\\t'": "a tab; indent with spaces",
    "mapping values are not allowed": "a second `: ` in the line, or a line that is indented too far; put a"
    " text with `: ` in quotes",
    "but found '<block mapping start>'": "a line that is indented in another way than those beside it",
    "could not find expected ':'": "a line without `: `, or a quote or bracket that is not closed",
    "but found '<stream end>'": "a quote or bracket that is not closed",
    "while scanning a quoted scalar": "a quote that is not closed",
    "but found another document": "`---` begins a second document; a file holds one",
    "expected ',' or '}'": "a text with `{`, `}`, `[`, `]` or `,` inside braces; put it in quotes",
    "undefined alias": "`*name` without an `&name` before it",
}


class _StandsTwice(Exception):
    def __init__(self, field: str, lines: tuple[int, int]) -> None:
        super().__init__(field)
        self.field, self.lines = field, lines


class _Loader(yaml.SafeLoader):
    """Loader that refuses a field given twice, where YAML would take the last one."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        first: dict[Any, int] = {}
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in first:
                    raise _StandsTwice(key.value, (first[key.value], line))
                first[key.value] = line
        return super().construct_mapping(node, deep=deep)


def read_yaml(text: str, file: object) -> Any:
    """Parse the content of a YAML file.

    Args:
        text: Content of the file.
        file: Name of the file in errors.

    Raises:
        SettingsError: the text is not YAML, or a field is repeated; the message names the lines.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except _StandsTwice as twice:
        raise SettingsError(
            f"{file}: {repeated(twice.field, *twice.lines)}", fix=FIX_OF_REPEATED, field=twice.field
        ) from None
    except yaml.MarkedYAMLError as error:
        raise SettingsError(
            f"the platform file {file} cannot be read: {not_yaml(error)}",
            fix="correct that line; `field: value` lines, sections indented by two spaces, as in"
            " docs/settings.md",
        ) from None


FIX_OF_REPEATED = "put what stands below both into one, and remove the other"


def repeated(field: str, first: int, second: int) -> str:
    """Return the message about a field that stands in two lines."""
    return f"`{field}` stands twice, in lines {first} and {second}, and only one can hold"


def line_of(error: yaml.MarkedYAMLError) -> int | None:
    """Return the line of an error, from 1; None if it names none."""
    mark = error.problem_mark or error.context_mark
    return None if mark is None else mark.line + 1


def not_yaml(error: yaml.MarkedYAMLError) -> str:
    """Return the message about a text that is no YAML: where, and the cause if it is a known one."""
    mark = error.problem_mark or error.context_mark
    where = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
    said = f"{error.context or ''} {error.problem or ''}"
    cause = next((why for part, why in _CAUSES.items() if part in said), None)
    return f"it is no YAML{where}{f': {cause}' if cause else ''}"
