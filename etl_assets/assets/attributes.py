"""What every asset of the platform has: description, owners, kinds, group, partitions, policies and pool."""

from typing import Any

import dagster as dg

from etl_assets.automation import FRESHNESS, after_inputs
from etl_assets.contracts.columns import TableContract
from etl_assets.metadata import definition_metadata
from etl_assets.partitions import daily_partitions
from etl_assets.settings import Settings

IO_MANAGER = "delta"


def attributes(
    contract: TableContract, settings: Settings, *, group: str, daily: bool = True, automated: bool = True
) -> dict[str, Any]:
    """Arguments of `@dg.asset` for a table.

    Args:
        contract: The table; name, description, columns and lineage follow from it.
        settings: The platform file.
        group: Group in the asset graph.
        daily: One partition a day of arrival; else none.
        automated: Materialized after its inputs; else by a sensor or by hand.
    """
    catalog = settings.catalog()
    # The replica of a mirrored table that counts is another after a change of leader: runs tell where it was.
    path = None if len(settings.domains) > 1 else settings.placement().domains[0].table_path(contract.name)
    return {
        "name": contract.name,
        "description": contract.description,
        "metadata": definition_metadata(contract, catalog, path),
        "owners": list(settings.owners),
        "kinds": {"pyspark", "deltalake"},
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
        # One writing run a table: the instance gives a pool one slot.
        "pool": contract.name,
        "io_manager_key": IO_MANAGER,
        "automation_condition": after_inputs(settings.home, catalog.reference) if automated else None,
    }
