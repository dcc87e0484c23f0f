"""Pipelines as answers show them: in short in lists, and as a whole."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

from etl_assets.errors import NotFound
from etl_assets.installed import Installed, contract_in
from etl_assets.pipelines.origin import DEFAULT_TENANT, DeclarationOrigin
from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.pipelines.pipeline_file import PipelineFile
from etl_assets.pipelines.resolved import resolved
from etl_assets.pipelines.schedule import Schedule
from etl_assets.serve.description import PROBLEM, object_schema
from etl_assets.serve.entity_tags import revision_tag, tag_of

_TEXT = {"type": "string"}
_FIELDS: dict[str, Any] = {
    "name": _TEXT,
    "tenant": _TEXT,
    "origin": {"enum": [each.value for each in DeclarationOrigin]},
    "read_only": {"type": "boolean", "description": "whether REST may not change it"},
    "state": {"enum": ["ok", "broken"]},
    "source": {"type": ["string", "null"], "description": "the type of its source"},
    "table": {"type": ["string", "null"]},
    "revision": {"type": ["integer", "null"], "description": "of a declaration over REST"},
    "problems": {"type": "array", "items": PROBLEM},
}
SUMMARY = object_schema(_FIELDS)
DETAIL = object_schema(
    {
        **_FIELDS,
        "declaration": {
            "type": ["object", "null"],
            "description": "with all defaults; null if it is broken or built in",
        },
        "tables": {
            "type": "array",
            "items": {"type": "object"},
            "description": "name, keys and columns of each",
        },
        "schedule": {
            "type": ["string", "null"],
            "description": "in words; null: as its source has something new",
        },
        "next_run_at": {
            "type": ["string", "null"],
            "description": "next tick of its schedule (UTC); null if times are not its ticks",
        },
    }
)
EXAMPLE: dict[str, Any] = {
    "name": "film_ratings",
    "tenant": DEFAULT_TENANT,
    "origin": DeclarationOrigin.FILE.value,
    "read_only": True,
    "state": "ok",
    "source": "http",
    "table": "film_ratings",
    "revision": None,
    "problems": [],
    "declaration": {"name": "film_ratings", "source": {"type": "http", "id": ["rating_id"]}},
    "tables": [{"name": "film_ratings", "description": "…", "keys": ["rating_id"], "columns": []}],
    "schedule": "cron 0 6 * * 1-5 (Europe/Berlin)",
    "next_run_at": "2026-03-02T05:00:00+00:00",
}


def summaries(installed: Installed, tenant: str) -> list[dict[str, Any]]:
    """Return the pipelines of a tenant, sorted by name; of several declarations of a name the usable one."""
    found: dict[str, dict[str, Any]] = {}
    for each in _all(installed, tenant):
        if each["name"] not in found or each["state"] == "ok":
            found[each["name"]] = each
    return [found[name] for name in sorted(found)]


def detail(installed: Installed, name: str) -> dict[str, Any]:
    """Return a pipeline with its declaration and tables.

    Raises:
        NotFound: there is none.
    """
    file = installed.declaration(name)
    if file is None:
        pipeline = next((each for each in installed.catalog.pipelines if each.name == name), None)
        if pipeline is None:
            raise NotFound(f"there is no pipeline {name!r}", fix="`GET /v1/pipelines` lists them")
        tables = [*map(_table, pipeline.stages)]
        return {**_of_built_in(pipeline), "declaration": None, "tables": tables, **_timing(None)}
    shown: Mapping[str, Any] = {"declaration": None, "tables": []}
    if file.spec is not None:
        shown = resolved(file, contract_in({each.name: each for each in installed.catalog.tables}))
    spec = None if file.spec is None else file.spec.schedule
    return {**_of_file(file), **shown, **_timing(None if spec is None else spec.value)}


def tag_of_detail(shown: Mapping[str, Any]) -> str:
    """Return the tag of a pipeline: of what the answer says, with the revision of one declared over REST."""
    lasting = {name: each for name, each in shown.items() if name != "next_run_at"}
    tag, revision = tag_of(lasting), shown["revision"]
    return tag if revision is None else revision_tag(revision, tag)


def _timing(schedule: Schedule | None) -> dict[str, Any]:
    following = None if schedule is None else schedule.next_tick(dt.datetime.now(dt.UTC))
    return {
        "schedule": None if schedule is None else str(schedule),
        "next_run_at": None if following is None else following.isoformat(),
    }


def _all(installed: Installed, tenant: str) -> Iterator[dict[str, Any]]:
    yield from (_of_file(each) for each in installed.files if each.tenant == tenant)
    if tenant == DEFAULT_TENANT:
        declared = {each.name for each in installed.files}
        for pipeline in installed.catalog.pipelines:
            if pipeline.names and pipeline.name not in declared:
                yield _of_built_in(pipeline)


def _of_file(file: PipelineFile) -> dict[str, Any]:
    spec = file.spec
    return {
        "name": file.name,
        "tenant": file.tenant,
        "origin": file.origin.value,
        "read_only": file.origin is not DeclarationOrigin.REST,
        "state": "broken" if spec is None else "ok",
        "source": None if spec is None else spec.source.type,
        "table": None if spec is None else spec.table_name,
        "revision": file.revision,
        "problems": [each.as_json() for each in file.problems],
    }


def _of_built_in(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "name": pipeline.name,
        "tenant": DEFAULT_TENANT,
        "origin": DeclarationOrigin.BUILT_IN.value,
        "read_only": True,
        "state": "ok",
        "source": None,
        "table": pipeline.names[-1],
        "revision": None,
        "problems": [],
    }


def _table(stage: Any) -> dict[str, Any]:
    return {"name": stage.name, "description": stage.table.description, "keys": [*stage.table.merge_key]}
