"""The steps of a platform, put together from its settings, for whoever runs them without a Dagster run.

Belongs here: what each step is told of the platform file. Does not belong here: where a step is placed (`placing.py`).
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from etl_assets.contracts.envelope import Limits
from etl_assets.contracts.tables import (
    AUDIT_LOG,
    CUSTOMERS,
    DEAD_LETTERS,
    NORMALIZED_ORDERS,
    ORDER_STATUS_VIEW,
    RAW_EVENTS,
    WAREHOUSE_ROWS,
)
from etl_assets.errors import NotFound
from etl_assets.sources.landing import LANDING, REPLAYS, Folders
from etl_assets.sources.replays import INGEST, replays_folder

if TYPE_CHECKING:
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import LandingSettings, Settings
    from etl_assets.steps.step import ReadMode, Step, StepContext

DATA_PATH = (CUSTOMERS.name, RAW_EVENTS.name, NORMALIZED_ORDERS.name, WAREHOUSE_ROWS.name)
"""What an event goes through until it is a warehouse row, in this order."""
DERIVED = (ORDER_STATUS_VIEW.name, DEAD_LETTERS.name, AUDIT_LOG.name)
"""What is made of it beside that path."""
WITHOUT_DAYS = frozenset({CUSTOMERS.name, ORDER_STATUS_VIEW.name})
"""Tables that are not partitioned by day."""
_MICROS_PER_HOUR = 3_600_000_000


def source_folders(settings: Settings, domain: FailureDomain) -> tuple[Folders, ...]:
    """The folders that ingest reads: landing files, and dead letters that were handed in again."""
    return (
        Folders(source=LANDING, path=settings.landing_path),
        Folders(source=REPLAYS, path=replays_folder(domain, INGEST)),
    )


def record_limits(landing: LandingSettings) -> Limits:
    """What a record may be, in the units of `contracts.envelope`."""
    earliest = dt.datetime.combine(landing.earliest_event_time, dt.time(), dt.UTC)
    return Limits(
        max_record_bytes=landing.max_record_bytes,
        earliest_micros=round(earliest.timestamp()) * 1_000_000,
        skew_micros=landing.max_clock_skew_hours * _MICROS_PER_HOUR,
    )


def step_of(
    table: str,
    settings: Settings,
    context: StepContext,
    mode: ReadMode,
    *,
    max_batch_bytes: int | None = None,
    most_batches: int | None = None,
) -> Step:
    """The step that writes a table.

    Args:
        table: Its name.
        settings: The platform file.
        context: The step's surroundings, its domain among them.
        mode: Read what is new, or all.
        max_batch_bytes: Input of one batch of raw_events; default the platform file's.
        most_batches: So many batches of raw_events in one go; default all that there are.

    Raises:
        NotFound: no step writes that table.
    """
    # Here, because whoever only looks for something to do has no use for numpy and the like.
    from etl_assets.steps.audit import Audit
    from etl_assets.steps.collect_dead_letters import CollectDeadLetters
    from etl_assets.steps.fold_status import FoldStatus
    from etl_assets.steps.ingest import Ingest
    from etl_assets.steps.load_customers import LoadCustomers
    from etl_assets.steps.load_warehouse import LoadWarehouse
    from etl_assets.steps.normalize import Normalize

    if table == CUSTOMERS.name:
        return LoadCustomers(context=context, file=settings.customers_file)
    if table == RAW_EVENTS.name:
        return Ingest(
            context=context,
            folders=source_folders(settings, context.domain),
            limits=record_limits(settings.landing),
            mode=mode,
            settle_seconds=settings.landing.settle_seconds,
            max_batch_bytes=max_batch_bytes or settings.landing.max_batch_bytes,
            most_batches=most_batches,
        )
    steps = {
        NORMALIZED_ORDERS.name: Normalize,
        WAREHOUSE_ROWS.name: LoadWarehouse,
        ORDER_STATUS_VIEW.name: FoldStatus,
        DEAD_LETTERS.name: CollectDeadLetters,
        AUDIT_LOG.name: Audit,
    }
    if table not in steps:
        raise NotFound(f"no step writes {table}", fix=f"name one of {', '.join((*DATA_PATH, *DERIVED))}")
    return steps[table](context=context, mode=mode)
