"""A declaration that comes over REST, judged among all others of the installation.

Belongs here: the declaration among the others, and which pipelines a change would break. Does not belong
here: what it shows by itself (`pipelines/rest_declaration.py`), and storing it (`definitions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etl_assets.contracts.columns import TableContract
from etl_assets.installed import built_in_catalog
from etl_assets.pipelines.catalog import Catalog
from etl_assets.pipelines.cross_checks import checked, contracts_of
from etl_assets.pipelines.origin import DeclarationOrigin
from etl_assets.pipelines.pipeline_file import PipelineFile
from etl_assets.pipelines.rest_declaration import rest_declaration
from etl_assets.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was found about a declaration among the others.

    Attributes:
        file: The declaration with its problems.
        contracts: The contracts of all tables, with its own.
        broken: Other pipelines that could be used, and could not with it.
    """

    file: PipelineFile
    contracts: Mapping[str, TableContract]
    broken: tuple[PipelineFile, ...] = ()


def declaration_of(
    settings: Settings, content: Mapping[str, Any], name: str | None, tenant: str
) -> PipelineFile:
    """Return a declaration with the problems that it has by itself, and by what `rest` in the platform file
    allows.
    """
    return rest_declaration(content, name=name, tenant=tenant, rights=settings.rest_rights)


def judged(settings: Settings, declaration: PipelineFile) -> Verdict:
    """Judge a declaration. It stands in place of the one of its name that its tenant has over REST."""
    others, base = _without(settings, declaration.name, declaration.tenant), _base(settings)
    *rest, found = checked([*others, declaration], base, settings.connection_rights)
    return Verdict(
        file=found,
        contracts=contracts_of((*rest, found), base),
        broken=_newly_broken(others, rest),
    )


def broken_without(settings: Settings, name: str, tenant: str) -> tuple[PipelineFile, ...]:
    """Return the pipelines that could not be used any more without one that a tenant has over REST."""
    others = _without(settings, name, tenant)
    return _newly_broken(others, checked(others, _base(settings), settings.connection_rights))


def _base(settings: Settings) -> Catalog:
    return built_in_catalog(settings.pipelines.built_in, settings.connection_rights)


def _without(settings: Settings, name: str, tenant: str) -> list[PipelineFile]:
    own = (name, tenant, DeclarationOrigin.REST)
    return [each for each in settings.installed().files if (each.name, each.tenant, each.origin) != own]


def _newly_broken(before: Sequence[PipelineFile], after: Sequence[PipelineFile]) -> tuple[PipelineFile, ...]:
    pairs = zip(before, after, strict=True)
    return tuple(then for now, then in pairs if now.spec is not None and then.spec is None)
