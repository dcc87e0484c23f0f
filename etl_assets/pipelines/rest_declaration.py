"""Declarations that came over REST, as pipeline files: one from its JSON, or all of the snapshot.

The snapshot is a file of the home folder with the newest revision of each pipeline. It is all that runs read,
so that they never wait for the control store. The server writes it (`control/snapshot.py`).

Belongs here: from JSON to a `PipelineFile` with the problems that it has by itself. Does not belong here:
what it may use (`rest_rights.py`), and storing it (`control/definitions.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from etl_assets.pipelines.origin import DeclarationOrigin
from etl_assets.pipelines.pipeline_file import PipelineFile, unreadable, validated
from etl_assets.pipelines.rest_rights import RestRights, right_problems
from etl_assets.pipelines.yaml_tree import YamlTree

SNAPSHOT = "rest_pipelines.json"
_NAME_CHARACTERS = 100


def snapshot_path(home: Path) -> Path:
    """Return the snapshot of an installation, which may not exist."""
    return home / SNAPSHOT


def rest_declaration(
    content: Mapping[str, Any],
    *,
    name: str | None,
    tenant: str,
    rights: RestRights | None,
    revision: int | None = None,
) -> PipelineFile:
    """Return a declaration with the problems that it has by itself.

    Args:
        content: The declaration, as JSON has it.
        name: The name that it is for; None: the one that it has.
        tenant: Whose it is.
        rights: What it may use; None: not compared.
        revision: Its revision, if it is stored.
    """
    given = content.get("name")
    known = str(name or (given if isinstance(given, str) else "") or "pipeline").replace("/", "_")
    path = Path(f"{known[:_NAME_CHARACTERS]} (REST)")
    whole = dict(content) if name is None else {"name": name, **content}
    environ = None if rights is None else rights.environ(os.environ)
    found = validated(YamlTree(value=whole), path, environ)
    found = replace(found, origin=DeclarationOrigin.REST, tenant=tenant, revision=revision)
    problems = [] if rights is None else [*right_problems(found, rights)]
    if name is not None and given not in (None, name):
        message = f"the declaration is for `{name}`"
        problems.append(found.problem(("name",), message, f"write `name: {name}`, or leave it out"))
    # A variable that is not allowed reads as one that is not set, which is not the reason.
    told = {each.field for each in problems}
    kept = tuple(each for each in found.problems if each.field not in told)
    return replace(found, problems=kept).with_problems(problems)


def read_snapshot(path: Path, rights: RestRights | None) -> tuple[PipelineFile, ...]:
    """Return the declarations of the snapshot, in the order in which they were stored.

    A snapshot that cannot be read is one broken declaration, so that the pipelines of files run.
    """
    try:
        entries = orjson.loads(path.read_bytes())["pipelines"]
        return tuple(
            rest_declaration(
                dict(each["declaration"]),
                name=str(each["name"]),
                tenant=str(each["tenant"]),
                rights=rights,
                revision=int(each["revision"]),
            )
            for each in entries
        )
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = "the pipelines that were declared over REST cannot be read"
        fix = f"start `etl-assets serve`, which writes {path.name} again from the control store"
        return (unreadable(path, error, what, fix=fix, origin=DeclarationOrigin.REST),)
