"""Generate docs/settings.md from the settings and the environment variables.

Belongs here: the form of a setting in Markdown. Does not belong here: anything the settings do not say
themselves.

`python -m etl_assets.settings_documentation > docs/settings.md` writes the page; a test fails when it is
stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.fields import FieldInfo

from etl_assets.environment import VARIABLES
from etl_assets.markdown_table import markdown_table
from etl_assets.settings import DomainSettings, Section, ServeSettings, Settings
from etl_assets.settings.connections import CONNECTION_TYPES, KafkaConnection, SchemaRegistry, type_of
from etl_assets.settings.oidc import OidcSettings
from etl_assets.settings.ui import UiSettings

_INTRODUCTION = """\
# Settings

<!-- Written by `python -m etl_assets.settings_documentation > docs/settings.md`. -->

The platform file is YAML: `platform.yaml` in the home folder, or the file that `ETL_ASSETS_PLATFORM_FILE`
names. It may be absent, and so may every field of it. A wrong field stops at load with its name, the value
found and what is allowed.

```yaml
start_date: 2026-01-01
landing:
  settle_seconds: 5
runs:
  max_days_per_run: 14
```
"""
_ENVIRONMENT = """\
## Environment variables

What differs between machines or is secret. An empty variable counts as unset.
"""
_SCALARS = {
    ("string", None): "text",
    ("string", "path"): "path",
    ("string", "date"): "day",
    ("integer", None): "whole number",
    ("number", None): "number",
    ("object", None): "mapping of texts",
}


def render() -> str:
    """Return the whole page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield from _section("Top level", Settings)
    for attribute, field in Settings.model_fields.items():
        name = _name(attribute)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _section(f"`{name}`", field.annotation)
            if field.annotation is ServeSettings:
                yield from _section("`serve.oidc`", OidcSettings)
                yield from _section("`serve.ui`", UiSettings)
        elif name == "domains":
            yield from _section("`domains[]`", DomainSettings)
        elif name == "connections":
            for kind in CONNECTION_TYPES:
                yield from _section(f"`connections.NAME` of type `{type_of(kind)}`", kind)
                if kind is KafkaConnection:
                    yield from _section("`schema_registry` of type `kafka`", SchemaRegistry)
    yield _ENVIRONMENT
    rows = ([f"`{variable.name}`", variable.default, variable.meaning] for variable in VARIABLES)
    yield from markdown_table(["variable", "default", "meaning"], rows)


def _section(title: str, section: type[Section]) -> Iterator[str]:
    yield f"## {title}\n"
    if lines := (section.__doc__ or "").strip().splitlines():
        yield f"{lines[0]}\n"
    schema = section.model_json_schema()
    rows = (
        [
            f"`{_name(name)}`",
            _type(schema["properties"][_name(name)], schema.get("$defs", {})),
            _default(field),
            _meaning(field),
        ]
        for name, field in section.model_fields.items()
        if name != "home"
    )
    yield from markdown_table(["field", "type", "default", "meaning"], rows)


def _name(field: str) -> str:
    """Return the name of a field in the platform file."""
    return "connections" if field == "file_connections" else field


def _type(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or none".join(
            [_type(next(s for s in schema["anyOf"] if s.get("type") != "null"), definitions), ""]
        )
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'], definitions)}s"
    if "$ref" in schema:
        values = definitions.get(schema["$ref"].rpartition("/")[2], {}).get("enum")
        return "one of " + ", ".join(f"`{value}`" for value in values) if values else "section"
    bounds = [
        f"{word} {schema[key]:,}".removesuffix(".0")
        for key, word in (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to"))
        if key in schema
    ]
    pattern = [f"matching `{schema['pattern']}`"] if "pattern" in schema else []
    return ", ".join(
        [_SCALARS[schema["type"], schema.get("format")], *([" ".join(bounds)] if bounds else []), *pattern]
    )


def _default(field: FieldInfo) -> str:
    value = field.default
    if field.is_required():
        return "must be given"
    if isinstance(value, Section):
        return "see below"
    if value is None or value in ({}, ()):
        return "none"
    if isinstance(value, tuple):
        return ", ".join(_entry(entry) for entry in value)
    return f"`{value}`"


def _entry(value: object) -> str:
    if not isinstance(value, Section):
        return f"`{value}`"
    return " ".join(f"`{name}: {getattr(value, name)}`" for name in type(value).model_fields)


def _meaning(field: FieldInfo) -> str:
    if field.description:
        return field.description
    annotation = field.annotation
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return (annotation.__doc__ or "").strip().splitlines()[0]
    return ""


if __name__ == "__main__":
    sys.stdout.write(render())
