"""Where the table of a user's asset is written and read: placed like the stages of the platform.

Applies to the resource that `platform_resources` makes for an installation. An IO manager that was given a
folder by hand writes there. Belongs here: the placement, and names that are taken. Does not belong here: the
write (`frame_step.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from etl_assets import environment
from etl_assets.errors import ContractError
from etl_assets.settings import load_settings
from etl_assets.steps.placing import place, take_up
from etl_assets.steps.step import StepContext
from etl_assets.steps.table_queue import TableQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl_assets.delta.table import Table
    from etl_assets.pipelines.undeclared import UndeclaredTables
    from etl_assets.placement.domains import FailureDomain, Placement
    from etl_assets.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class _WithOneMore:
    """The undeclared tables, and one that may not be there yet."""

    others: UndeclaredTables | None
    name: str

    def names(self) -> tuple[str, ...]:
        found = () if self.others is None else self.others.names()
        return tuple(sorted({*found, self.name}))

    def has(self, name: str) -> bool:
        return name == self.name or (self.others is not None and self.others.has(name))

    def unlisted(self) -> tuple[str, ...]:
        return () if self.others is None else self.others.unlisted()


def settings_of(home: str, domain: FailureDomain) -> Settings | None:
    """Return the settings of the installation that an IO manager belongs to; None if it stands alone.

    Args:
        home: The installation's home folder; empty for none.
        domain: The domain that the IO manager was given. If the installation does not have it, the IO manager
            was given a folder by hand.
    """
    if not home:
        return None
    settings = load_settings({**os.environ, environment.HOME.name: home})
    known = {each.name: (each.root, each.sites) for each in settings.placement().domains}
    return settings if known.get(domain.name) == (domain.root, domain.sites) else None


def own_context(settings: Settings, table: Table, session: Callable[[], SparkSession]) -> StepContext:
    """Return the context of a write to the table of a user's asset, in the domain that leads it or may.

    Raises:
        DomainUnavailable: no domain may and can take the write.
    """
    placement = _with_table(settings.placement(), table.name)
    domain = place(placement, table.name)
    return StepContext(
        session=session,
        domain=domain,
        lock_wait_seconds=settings.runs.lock_wait_seconds,
        domain_problem=lambda: placement.problem(domain),
        take_up=partial(take_up, placement),
        turns=TableQueue(folder=settings.turns_path),
    )


def expect_own_name(settings: Settings, table: Table, asset: str) -> None:
    """Refuse an asset whose table is the platform's, or a declared pipeline's.

    Raises:
        ContractError: the name is taken.
    """
    catalog = settings.catalog()
    if table.name in catalog.names:
        pipeline = catalog.pipeline_of(table.name)
        whose = "the platform" if pipeline is None else f"the pipeline {pipeline.name}"
        raise ContractError(
            f"the asset {asset} cannot write the table {table.name}: it is that of {whose}",
            fix="give the asset another key",
            asset=asset,
            table=table.name,
        )


def _with_table(placement: Placement, name: str) -> Placement:
    catalog = placement.catalog
    catalog = catalog.with_undeclared(_WithOneMore(others=catalog.undeclared, name=name))
    return replace(placement, domains=tuple(replace(each, catalog=catalog) for each in placement.domains))
