"""Declarations that come over REST, judged as pipeline files are.

Belongs here: from a JSON object to a `PipelineFile` with its problems. Does not belong here: storing them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from etl_assets.contracts.columns import TableContract
from etl_assets.installed import built_in_catalog
from etl_assets.pipelines.cross_checks import checked, contracts_of, lookups, table_names
from etl_assets.pipelines.origin import DeclarationOrigin
from etl_assets.pipelines.pipeline_file import PipelineFile, validated
from etl_assets.pipelines.rest_rights import right_problems
from etl_assets.pipelines.yaml_tree import YamlTree
from etl_assets.settings import Settings


def declaration_of(
    settings: Settings, content: Mapping[str, Any], name: str | None, tenant: str, revision: int | None = None
) -> PipelineFile:
    """Return a declaration with the problems that it has by itself.

    Args:
        settings: The platform file: `rest` says what declarations may use.
        content: The declaration, as JSON has it.
        name: The name that it is for; None: the one that it has.
        tenant: Whose it is.
        revision: Its revision, if it is stored.
    """
    rights = settings.rest_rights
    given = content.get("name")
    path = Path(str(name or (given if isinstance(given, str) else "") or "pipeline").replace("/", "_")[:100])
    whole = dict(content) if name is None else {"name": name, **content}
    found = validated(YamlTree(value=whole), path, rights.environ(os.environ))
    found = replace(found, origin=DeclarationOrigin.REST, tenant=tenant, revision=revision)
    problems = [*right_problems(found, rights)]
    told = {each.field for each in problems}
    if name is not None and given not in (None, name):
        problems.append(
            found.problem(
                ("name",), f"the declaration is for `{name}`", f"write `name: {name}`, or leave it out"
            )
        )
    # A variable that is not allowed reads as one that is not set, which is not the reason.
    kept = tuple(each for each in found.problems if each.field not in told)
    return replace(found, problems=kept).with_problems(problems)


def judged(settings: Settings, declaration: PipelineFile) -> tuple[PipelineFile, tuple[PipelineFile, ...]]:
    """Return a declaration with the problems that it has among the others, and all of them together.

    It stands in place of the one of its name that its tenant has over REST.
    """
    others = [
        each
        for each in settings.installed().files
        if not (
            each.name == declaration.name
            and each.tenant == declaration.tenant
            and each.origin is DeclarationOrigin.REST
        )
    ]
    base = built_in_catalog(settings.pipelines.built_in, settings.connection_rights)
    files = checked([*others, declaration], base, settings.connection_rights)
    last = files[-1].with_problems(_foreign_lookups(files[-1], files))
    return last, (*files[:-1], last)


def contracts_with(settings: Settings, files: tuple[PipelineFile, ...]) -> dict[str, TableContract]:
    """Return the contracts of all tables, with those of judged files."""
    return contracts_of(files, built_in_catalog(settings.pipelines.built_in, settings.connection_rights))


def _foreign_lookups(file: PipelineFile, files: tuple[PipelineFile, ...]) -> list[Any]:
    """Return the lookups in tables of other tenants, which are told as tables that are not there."""
    if file.spec is None:
        return []
    foreign = {
        name
        for each in files
        if each.spec is not None and each.tenant != file.tenant
        for name in table_names(each.spec)
    }
    return [
        file.problem(place, f"there is no table `{name}`", "look up tables of your own tenant")
        for place, name in lookups(file.spec)
        if name in foreign
    ]
