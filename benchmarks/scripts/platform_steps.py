"""The platform's steps outside of Dagster, put together as its assets do it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.contracts.tables import (
    AUDIT_LOG,
    CUSTOMERS,
    DEAD_LETTERS,
    NORMALIZED_ORDERS,
    ORDER_STATUS_VIEW,
    RAW_EVENTS,
    WAREHOUSE_ROWS,
)
from etl_assets.settings import DomainSettings, LandingSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from etl_assets.steps.step import ReadMode, Step

DATA_PATH = (CUSTOMERS.name, RAW_EVENTS.name, NORMALIZED_ORDERS.name, WAREHOUSE_ROWS.name)
"""The steps that are compared with others."""
DERIVED = (ORDER_STATUS_VIEW.name, DEAD_LETTERS.name, AUDIT_LOG.name)
"""The steps that are reported separately."""


def platform(home: Path, landing: Path, domains: int = 1) -> Settings:
    """A platform with the default settings, for a landing folder whose files are finished, in one domain or several."""
    settings = Settings(home=home, landing=LandingSettings(path=landing, settle_seconds=0))
    if domains == 1:
        return settings
    several = tuple(
        DomainSettings(name=f"local/{number}", root=f"domain-{number}") for number in range(domains)
    )
    return settings.model_copy(update={"domains": several})


def steps(settings: Settings, session: Callable[[], SparkSession], mode: ReadMode) -> dict[str, Step]:
    """Every step by the table it writes."""
    from etl_assets.placement.policy import Stage
    from etl_assets.resources.platform import record_limits, source_folders
    from etl_assets.steps.audit import Audit
    from etl_assets.steps.collect_dead_letters import CollectDeadLetters
    from etl_assets.steps.fold_status import FoldStatus
    from etl_assets.steps.ingest import Ingest
    from etl_assets.steps.load_customers import LoadCustomers
    from etl_assets.steps.load_warehouse import LoadWarehouse
    from etl_assets.steps.normalize import Normalize
    from etl_assets.steps.step import StepContext

    domain = settings.placement().place(Stage.INGEST)
    context = StepContext(session=session, domain=domain)
    return {
        CUSTOMERS.name: LoadCustomers(context=context, file=settings.customers_file),
        RAW_EVENTS.name: Ingest(
            context=context,
            folders=source_folders(settings, domain),
            limits=record_limits(settings.landing),
            mode=mode,
            settle_seconds=settings.landing.settle_seconds,
            max_batch_bytes=settings.landing.max_batch_bytes,
        ),
        NORMALIZED_ORDERS.name: Normalize(context=context, mode=mode),
        WAREHOUSE_ROWS.name: LoadWarehouse(context=context, mode=mode),
        ORDER_STATUS_VIEW.name: FoldStatus(context=context, mode=mode),
        DEAD_LETTERS.name: CollectDeadLetters(context=context, mode=mode),
        AUDIT_LOG.name: Audit(context=context, mode=mode),
    }
