"""A YAML text as plain values, with the line of each.

Values are read as YAML 1.2 has them, and as editors check them by the JSON Schema: `on`, `yes` and `no` are
texts, and so are days and times. Merge keys (`<<`) and tags (`!!…`) are refused.

Belongs here: the tree of a file from outside, within limits. Does not belong here: which fields there are
(`spec.py`), and the wording for YAML that cannot be parsed (`yaml_content.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from yaml.reader import ReaderError

from etl_assets.pipelines.problem import Path, Problem, dotted
from etl_assets.yaml_content import FIX_OF_REPEATED, line_of, not_yaml, repeated

MAX_BYTES = 1_000_000
MAX_DEPTH = 40
MAX_VALUES = 50_000
"""Values of a file, with those that its aliases repeat."""
_TAG = "tag:yaml.org,2002:"
_FORMS = {
    "null": re.compile(r"~|null|Null|NULL|"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(r"[-+]?[0-9]{1,40}"),
    "float": re.compile(r"[-+]?(?:\.[0-9]{1,40}|[0-9]{1,40}(?:\.[0-9]{0,40})?)(?:[eE][-+]?[0-9]{1,3})?"),
}


@dataclass(frozen=True, kw_only=True)
class YamlTree:
    """What a file says.

    Attributes:
        value: Its mappings, lists and single values; None if nothing could be read.
        lines: The line of each, by the keys and indexes that lead to it.
        problems: What is wrong with the file as YAML.
    """

    value: Any = None
    lines: Mapping[Path, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def line(self, path: Path) -> int | None:
        """Return the line of a place; of the block that it is missing in, if it is not there."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def below(self, key: str) -> YamlTree:
        """Return what stands at a key of the file's mapping, as a tree of its own with the lines of the
        file.
        """
        prefix = f"{key}."
        return YamlTree(
            value=self.value[key],
            lines={path[1:]: line for path, line in self.lines.items() if path[:1] == (key,)},
            problems=tuple(
                replace(each, field=each.field.removeprefix(prefix) if each.field != key else "")
                for each in self.problems
            ),
        )


class _Loader(yaml.SafeLoader):
    """Composes nodes within the limits, and finds only texts: which value a text stands for is decided
    later.
    """

    yaml_implicit_resolvers: Mapping[str, Any] = {}

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = self._count = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        self._count += 1
        if self._depth > MAX_DEPTH or self._count > MAX_VALUES:
            raise _TooMuch(self.peek_event().start_mark.line + 1, self._depth > MAX_DEPTH)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _TooMuch(Exception):
    def __init__(self, line: int, is_depth: bool) -> None:
        super().__init__(line)
        self.problem = (
            Problem(line, "", f"blocks stand more than {MAX_DEPTH} deep in each other", "write fewer levels")
            if is_depth
            else Problem(
                line,
                "",
                f"the file has more than {MAX_VALUES:,} values, counting those that `*aliases` repeat",
                "make several pipelines of it, or repeat less",
            )
        )


def read_tree(content: bytes) -> YamlTree:
    """Read the content of a file. What is wrong with it is in the tree's problems."""
    return next(_trees(content, several=False), YamlTree())


def read_trees(content: bytes) -> tuple[YamlTree, ...]:
    """Read the documents of a file, which `---` separates.

    Where the file is no YAML any more, the last tree has the problem; the documents before it are whole.
    """
    return tuple(_trees(content, several=True))


def _trees(content: bytes, *, several: bool) -> Iterator[YamlTree]:
    if len(content) > MAX_BYTES:
        yield _broken(None, f"the file has more than {MAX_BYTES:,} bytes", "declare one pipeline in a file")
        return
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        yield _broken(line, f"byte {error.start + 1:,} of the file is not UTF-8", "save the file as UTF-8")
        return
    loader = None
    try:
        loader = _Loader(text)
        if several:
            while loader.check_node():
                yield _Values().tree(loader.get_node())
        elif (node := loader.get_single_node()) is not None:
            yield _Values().tree(node)
    except _TooMuch as error:
        yield YamlTree(problems=(error.problem,))
    except ReaderError as error:
        yield _broken(
            text.count("\n", 0, int(error.position)) + 1,
            f"the file has the character U+{int(error.character):04X}, which no YAML may have",
            "remove it",
        )
    except yaml.MarkedYAMLError as error:
        yield _broken(
            line_of(error),
            not_yaml(error),
            "correct that line: `field: value`, blocks indented by two spaces",
        )
    finally:
        if loader is not None:
            loader.dispose()


def _broken(line: int | None, message: str, fix: str) -> YamlTree:
    return YamlTree(problems=(Problem(line, "", message, fix),))


class _Values:
    """From nodes to values. An alias is counted each time, as its values are looked at each time."""

    def __init__(self) -> None:
        self._lines: dict[Path, int] = {}
        self._problems: list[Problem] = []
        self._above: list[yaml.Node] = []

    def tree(self, node: yaml.Node) -> YamlTree:
        value = self._value(node, (), node.start_mark.line + 1)
        return YamlTree(value=value, lines=self._lines, problems=tuple(self._problems))

    def _value(self, node: yaml.Node, path: Path, line: int) -> Any:
        if node in self._above:
            self._wrong(
                line, path, "an `*alias` stands inside what it repeats", "write the values in its place"
            )
            return None
        if len(self._lines) >= MAX_VALUES or len(self._above) >= MAX_DEPTH:
            raise _TooMuch(line, len(self._above) >= MAX_DEPTH)
        self._lines[path] = line
        kind = {yaml.MappingNode: "map", yaml.SequenceNode: "seq"}.get(type(node), "str")
        if node.tag != _TAG + kind and not (kind == "str" and node.tag in ("!", None)):
            self._wrong(line, path, "a tag (`!…`) gives the value a type of its own", "remove the tag")
            return None
        self._above.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return [
                    self._value(item, (*path, index), item.start_mark.line + 1)
                    for index, item in enumerate(node.value)
                ]
            if any("\ud800" <= char <= "\udfff" for char in node.value):
                self._wrong(line, path, "a text has half a character (`\\ud800` to `\\udfff`)", "remove it")
                return None
            return node.value if getattr(node, "style", None) else _single(node.value)
        finally:
            self._above.pop()

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        first: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self._wrong(
                    line, path, "a list or mapping stands where a field's name should", "write `field: value`"
                )
            elif key.value == "<<" and not key.style:
                self._wrong(
                    line,
                    path,
                    "`<<` takes over the fields of another block, and is not read",
                    "write them out",
                )
            elif key.value in first:
                message = repeated(key.value, first[key.value], line)
                self._wrong(line, (*path, key.value), message, FIX_OF_REPEATED)
            else:
                first[key.value] = line
                found[key.value] = self._value(value, (*path, key.value), line)
        return found

    def _wrong(self, line: int, path: Path, message: str, fix: str) -> None:
        self._problems.append(Problem(line, dotted(path), message, fix))


def _single(text: str) -> Any:
    """Return the value that a text without quotes stands for."""
    kind = next((kind for kind, form in _FORMS.items() if form.fullmatch(text)), "str")
    match kind:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text)
        case "float":
            return float(text)
        case _:
            return text
