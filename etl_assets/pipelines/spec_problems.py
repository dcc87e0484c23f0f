"""From pydantic's errors about a declaration to problems with line, field, value found and what is allowed.

Belongs here: wording. What is allowed is taken from the JSON Schema of the model, so that a new block or
field needs nothing here. Does not belong here: reading files, and rules that need other pipelines
(`cross_checks.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import ValidationError

from etl_assets.pipelines.problem import Path, Problem, dotted, near
from etl_assets.pipelines.spec import PipelineSpec
from etl_assets.pipelines.spec_fields import NAME_PATTERN
from etl_assets.pipelines.yaml_tree import YamlTree

_CREDENTIALS = re.compile(r"(?<=://)[^\s'\"]*@|(?<=[^\s'\"][?;])[^\s'\"]*=[^\s'\"]*")
_SHOWN_CHARACTERS = 60
_NOT_A_BLOCK = {"model_type", "model_attributes_type", "dict_type"}
_NOT_A_LIST = {"tuple_type", "list_type"}
_OF_THE_TYPE = {"literal_error", "union_tag_invalid", "union_tag_not_found"}
"""Errors after which the other fields of a block say nothing: it is not known which block it is."""


@cache
def _schema() -> dict[str, Any]:
    return PipelineSpec.model_json_schema()


@dataclass(frozen=True, slots=True)
class _Place:
    """A place of the declaration: its path in the file, and what the schema says of it."""

    path: Path
    schema: Mapping[str, Any]
    block: Mapping[str, Any]


def spec_problems(error: ValidationError, tree: YamlTree, is_hidden: Callable[[Path], bool]) -> list[Problem]:
    """Return a problem for each error, in the order of the lines.

    Args:
        error: What pydantic found in the values of the tree.
        tree: The file.
        is_hidden: Whether the value at a path, or one below it, must not be shown.
    """
    errors = [(each, _place(each["loc"])) for each in error.errors(include_url=False)]
    unknown = {
        place.path if each["type"] != "literal_error" else place.path[:-1]
        for each, place in errors
        if each["type"] in _OF_THE_TYPE and (each["type"] != "literal_error" or place.path[-1:] == ("type",))
    }
    # A list whose only item is wrong is not too short as well.
    wrong = [place.path for _, place in errors]
    found = [
        _problem(each, place, tree, is_hidden)
        for each, place in errors
        if not (each["type"] == "too_short" and any(_is_below(path, place.path) for path in wrong))
        if each["type"] in _OF_THE_TYPE or not any(place.path[: len(path)] == path for path in unknown)
    ]
    return sorted(found, key=lambda problem: problem.line or 0)


def _is_below(path: Path, above: Path) -> bool:
    return len(path) > len(above) and path[: len(above)] == above


def _place(location: Path) -> _Place:
    """Return the place of an error. Pydantic puts the `type` of a block into the location; it is dropped."""
    path: list[str | int] = []
    schema = block = _resolved(_schema())
    for part in location:
        if "discriminator" in schema and part in schema["discriminator"]["mapping"]:
            schema = _resolved({"$ref": schema["discriminator"]["mapping"][part]})
            continue
        if part == "[key]":
            schema = schema.get("propertyNames", {})
            continue
        path.append(part)
        block = schema
        if isinstance(part, int):
            schema = _resolved(schema.get("items", {}))
        else:
            schema = _resolved(_below(schema, part))
    return _Place(tuple(path), schema, block)


def _below(schema: Mapping[str, Any], name: str) -> Any:
    of_any_name = next(iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties"))
    return schema.get("properties", {}).get(name) or of_any_name


def _resolved(schema: Any) -> Mapping[str, Any]:
    """Return a schema without references, and without the choice between a value and none."""
    if not isinstance(schema, Mapping):
        return {}
    if "$ref" in schema:
        return {**_schema()["$defs"][schema["$ref"].rpartition("/")[2]], **schema}
    if "anyOf" in schema:
        return {**_resolved(next(each for each in schema["anyOf"] if each.get("type") != "null")), **schema}
    return schema


def _problem(
    error: Mapping[str, Any], place: _Place, tree: YamlTree, is_hidden: Callable[[Path], bool]
) -> Problem:
    path, kind, context = place.path, error["type"], error.get("ctx", {})
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        path = (*path, "type")
    given = None if is_hidden(path) else _shown(error["input"])
    field, what = dotted(path), _what(path, given)
    line = tree.line(path)
    match kind:
        case "missing":
            return Problem(line, field, f"`{path[-1]}` is missing{_in(path)}", _example(place, str(path[-1])))
        case "union_tag_not_found":
            fix = f"one of {_listed(place.schema['discriminator']['mapping'])}"
            return Problem(
                line,
                field,
                f"`type` is missing{_in(path)}",
                fix,
                allowed=tuple(place.schema["discriminator"]["mapping"]),
            )
        case "extra_forbidden":
            return Problem(line, field, f"there is no field `{path[-1]}`{_in(path)}", _fields(place))
        case "union_tag_invalid":
            values = list(place.schema["discriminator"]["mapping"])
            tag = str(context.get("tag", ""))
            shown = None if is_hidden(path) else _shown(tag)
            return Problem(
                line,
                field,
                f"{_what(path, shown)} is not known",
                _one_of(shown or "", values),
                value=shown,
                allowed=tuple(values),
            )
        case "enum" | "literal_error":
            values = _values(place.schema)
            return Problem(
                line,
                field,
                f"{what} is not known",
                _one_of(given or "", values),
                value=given,
                allowed=tuple(values),
            )
    if error["loc"][-1:] == ("[key]",):
        return Problem(
            line, field, f"{path[-1]!r} is not a name that it may have", _fix_of_name(str(path[-1]))
        )
    return Problem(line, field, *_wrong_value(error, place, what, given), value=given)


def _wrong_value(error: Mapping[str, Any], place: _Place, what: str, given: str | None) -> tuple[str, str]:
    kind, context = error["type"], error.get("ctx", {})
    if error["input"] is None and kind != "value_error":
        return f"{what} has no value", _example(place, "")
    if kind in _NOT_A_BLOCK:
        return f"{what} should be a mapping", "write `field: value` lines below it, indented by two spaces"
    if kind in _NOT_A_LIST:
        return f"{what} should be a list", f"write `[{given or '…'}]`, or `- …` lines below it"
    if kind == "string_type":
        if given is None or not isinstance(error["input"], (bool, int, float)):
            return f"{what} should be a text", "write a text"
        return f"{what} should be a text", f'put it in quotes: `"{given}"`'
    if kind == "string_pattern_mismatch":
        if context.get("pattern") == f"^{NAME_PATTERN}$":
            return f"{what} is not a name that it may have", _fix_of_name(str(error["input"]))
        return f"{what} is not of the form that is expected", _example(place, "")
    if kind == "value_error":
        message, _, fix = str(context["error"]).partition("; ")
        return f"{what} is wrong: {message}" if given else message, fix or "see docs/pipelines.md"
    return f"{what} is wrong: {_lower(error['msg'])}", _example(place, "")


def _shown(value: object) -> str | None:
    """Return a single value as the message shows it; None for a block or a list."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, (str, int, float)):
        return None
    text = _CREDENTIALS.sub("…", str(value))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _what(path: Path, given: str | None) -> str:
    name = next((f"`{part}`" for part in reversed(path) if isinstance(part, str)), "the file")
    return name if given is None else f"{name}: `{given}`"


def _in(path: Path) -> str:
    return f" in {dotted(path[:-1])}" if path[:-1] else ""


def _fields(place: _Place) -> str:
    names = list(place.block.get("properties", ()))
    return f"{near(str(place.path[-1]), names)}fields: {', '.join(names)}"


def _values(schema: Mapping[str, Any]) -> list[str]:
    return [str(value) for value in schema.get("enum") or [schema.get("const", "")]]


def _one_of(given: object, values: Collection[str]) -> str:
    return f"{near(str(given), values)}use {'one of ' if len(values) > 1 else ''}{_listed(values)}"


def _listed(values: Collection[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _fix_of_name(given: str) -> str:
    rule = "lower-case letters, digits and `_`, beginning with a letter, at most 64 characters"
    better = re.sub(r"[^a-z0-9]+", "_", given.lower()).strip("_")[:64]
    return f"such as `{better}`: {rule}" if re.fullmatch(NAME_PATTERN, better) else f"use {rule}"


def _example(place: _Place, name: str) -> str:
    """Return what a field may be: an example, its values or its meaning."""
    return "; ".join(_parts_of_example(place, name)) or "see docs/pipelines.md"


def _parts_of_example(place: _Place, name: str) -> Iterator[str]:
    schema, before = place.schema, f"{name}: " if name else ""
    if values := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        yield f"write `{before}{values[0]}`" if len(values) == 1 else f"one of {_listed(values)}"
    elif examples := schema.get("examples"):
        yield f"such as `{before}{examples[0]}`"
    elif name:
        yield f"add `{name}`"
    if description := schema.get("description", "").strip():
        yield description.splitlines()[0]


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
