"""Attributes that every asset of the platform has.

They are description, owners, kinds, group, partitions, policies and pool.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from etl_assets.automation import FRESHNESS, after_inputs
from etl_assets.contracts.columns import TableContract
from etl_assets.metadata import definition_metadata
from etl_assets.partitions import daily_partitions
from etl_assets.settings import Settings

IO_MANAGER = "delta"
_PRIORITY = "dagster/priority"
"""The tag by which a run orders steps that can run: the highest first, 0 without the tag."""


def attributes(
    contract: TableContract,
    settings: Settings,
    *,
    group: str,
    daily: bool = True,
    automated: bool = True,
    owners: Sequence[str] = (),
    kinds: Sequence[str] = (),
    deliveries: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the arguments of `@dg.asset` for a table.

    Args:
        contract: The table's contract, which supplies name, description, columns and lineage.
        settings: The platform file.
        group: Group in the asset graph.
        daily: Whether the asset has one partition per day of arrival; otherwise it has none.
        owners: Its owners; by default the platform file's.
        kinds: Its kinds, which the asset graph shows with icons.
        automated: Whether it is materialized after its inputs; otherwise by a sensor or by hand.
        deliveries: Names of the deliveries that it reads rejected rows of: a run executes it after them, and
            whether they fail or not.
    """
    catalog = settings.catalog()
    # A mirrored table's path changes with its leader, so each run reports where it was.
    path = None if len(settings.domains) > 1 else settings.placement().domains[0].table_path(contract.name)
    return {
        "name": contract.name,
        "description": contract.description,
        "metadata": definition_metadata(contract, catalog, path),
        "owners": list(owners or settings.owners),
        "kinds": set(kinds),
        "group_name": group,
        "partitions_def": daily_partitions(settings.start_date) if daily else None,
        "backfill_policy": dg.BackfillPolicy.multi_run(settings.runs.max_days_per_run) if daily else None,
        "freshness_policy": FRESHNESS,
        "retry_policy": dg.RetryPolicy(
            max_retries=settings.runs.max_retries,
            delay=settings.runs.retry_delay_seconds,
            backoff=dg.Backoff.EXPONENTIAL,
            jitter=dg.Jitter.FULL,
        ),
        # One writing run per table: the instance gives a pool one slot.
        "pool": contract.name,
        "op_tags": {_PRIORITY: "-1"} if deliveries else {},
        "io_manager_key": IO_MANAGER,
        "automation_condition": (
            after_inputs(settings.home, catalog.reference, deliveries) if automated else None
        ),
    }
