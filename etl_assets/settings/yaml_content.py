"""Reading YAML: a repeated field is refused, and an error names its place and, if known, its cause.

Belongs here: YAML. Does not belong here: which fields exist (`platform.py`). YAML's own messages may quote a
line, which may hold a secret, so they are not passed on.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from etl_assets.errors import SettingsError

_CAUSES = {
    "found character '\\t'": "a tab; indent with spaces",
    "mapping values are not allowed": "a second `: ` in the line, or a line that is indented too far; put a text with `: ` in quotes",
    "but found '<block mapping start>'": "a line that is indented in another way than those beside it",
    "could not find expected ':'": "a line without `: `, or a quote or bracket that is not closed",
    "but found '<stream end>'": "a quote or bracket that is not closed",
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
        first, second = twice.lines
        raise SettingsError(
            f"{file}: `{twice.field}` stands twice, in lines {first} and {second}, and only one can hold",
            fix="put what stands below both into one, and remove the other",
            field=twice.field,
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        cause = next((why for said, why in _CAUSES.items() if said in (error.problem or "")), None)
        raise SettingsError(
            f"the platform file {file} cannot be read: it is no YAML{where}{f': {cause}' if cause else ''}",
            fix="correct that line; `field: value` lines, sections indented by two spaces, as in docs/settings.md",
        ) from None
