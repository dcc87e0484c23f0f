"""The YAML of the pages about sources and sinks is an installation that `pipelines validate` accepts.

Of each page all connections are put into one platform file. A whole pipeline is a file. A part of one, such
as its sinks, stands in the pipeline of the file that it names, or in the last one before it.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from etl_assets.cli.pipelines import pipelines
from etl_assets.pipelines.sink_specs import SinkSpec
from etl_assets_tests.docs.test_first_pipeline import blocks

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("sources", "sinks", "http", "sql-to-warehouse")
BEFORE_ANY = {"columns": {"order_id": "string"}, "table": {"write_mode": "append"}}
"""What a part stands in on a page that has shown no whole pipeline yet."""
SINKS = {
    typing.get_args(each.model_fields["type"].annotation)[0]
    for each in typing.get_args(typing.get_args(SinkSpec)[0])
}


def shown(page: str) -> list[tuple[str, dict[str, Any]]]:
    """The YAML of a page, each with the name of the pipeline whose file it says it is of."""
    found = []
    for block in blocks(DOCS / f"{page}.md", "yaml"):
        named = re.search(r"^# pipelines/(\w+)\.yaml", block, re.MULTILINE)
        found.append((named[1] if named else "", yaml.safe_load(block)))
    return found


def declarations(page: str) -> Iterator[dict[str, Any]]:
    """The pipelines of a page, each with a name of its own: those that are whole and those of a part."""
    whole: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}
    for number, (named, block) in enumerate(shown(page)):
        part = {name: value for name, value in block.items() if name != "connections"}
        if not part:
            continue
        if "name" in part:
            whole.pop(part["name"], None)
            whole[part["name"]] = part
            names[part["name"]] = f"example_{number}"
        before = whole.get(named) or next(reversed(whole.values()), BEFORE_ANY)
        source = part.get("source", {})
        if source.get("type") == "table":
            source = {**source, "table": names[source["table"]]}
        elif not {"query", "path"} & source.keys():
            source = {**before["source"], **source}
        table = {**before["table"], **part.get("table", {})}
        yield {**before, **part, "source": source, "table": table, "name": f"example_{number}"}


@pytest.mark.parametrize("page", PAGES)
def test_every_declaration_of_the_page_is_valid_with_its_connections(page, tmp_path, monkeypatch):
    connections = {
        name: each for _, block in shown(page) for name, each in block.get("connections", {}).items()
    }
    for name in re.findall(r"\$\{(\w+)\}", (DOCS / f"{page}.md").read_text("utf-8")):
        monkeypatch.setenv(name, "secret")
    home = tmp_path / "home"
    (home / "pipelines").mkdir(parents=True)
    (home / "platform.yaml").write_text(yaml.safe_dump({"connections": connections}), "utf-8")
    declared = list(declarations(page))
    for each in declared:
        (home / "pipelines" / f"{each['name']}.yaml").write_text(yaml.safe_dump(each), "utf-8")
    done = CliRunner().invoke(pipelines, ["validate", "--no-connect", "--no-import"])
    assert done.exit_code == 0, done.output
    assert done.output.count(": ok\n") == len(declared) > 0


def test_the_pages_show_every_type_of_source_and_sink():
    declared = [each for page in PAGES for each in declarations(page)]
    sources = {"files", "http", "kafka", "sql", "postgres_cdc", "debezium", "table"}
    assert {each["source"]["type"] for each in declared} == sources
    assert {sink["type"] for each in declared for sink in each.get("sinks", ())} == SINKS
