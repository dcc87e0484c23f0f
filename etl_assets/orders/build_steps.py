"""The steps of the orders pipeline, built from the platform file.

Belongs here: which settings each step gets. Does not belong here: where a step is placed
(`steps/placing.py`).

A step's module is imported when the step is built: checking for work needs no numpy.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from etl_assets.contracts.envelope import Limits
from etl_assets.orders.tables.customers import CUSTOMERS

if TYPE_CHECKING:
    from etl_assets.ingest.file_source import FileSource
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import LandingSettings, Settings
    from etl_assets.steps.step import Step, StepArguments

_MICROS_PER_HOUR = 3_600_000_000


def order_events(settings: Settings, domain: FailureDomain) -> FileSource:
    """Return the files that ingest reads: landing files, and replayed dead letters."""
    from etl_assets.ingest.envelope_records import EnvelopeRecords
    from etl_assets.ingest.file_source import FileSource
    from etl_assets.sources.landing import LANDING, REPLAYS, Folders
    from etl_assets.sources.replays import INGEST, replays_folder

    return FileSource(
        folders=(
            Folders(source=LANDING, path=settings.landing_path),
            Folders(source=REPLAYS, path=replays_folder(domain, INGEST)),
        ),
        records=EnvelopeRecords(limits=record_limits(settings.landing)),
        settle_seconds=settings.landing.settle_seconds,
        max_batch_bytes=settings.landing.max_batch_bytes,
    )


def record_limits(landing: LandingSettings) -> Limits:
    """Return the limits of a record, in the units of `contracts.envelope`."""
    earliest = dt.datetime.combine(landing.earliest_event_time, dt.time(), dt.UTC)
    return Limits(
        max_record_bytes=landing.max_record_bytes,
        earliest_micros=round(earliest.timestamp()) * 1_000_000,
        skew_micros=landing.max_clock_skew_hours * _MICROS_PER_HOUR,
    )


def load_customers(arguments: StepArguments) -> Step:
    """Build the step that loads customers from the reference file."""
    from etl_assets.orders.steps.load_customers import LoadCustomers

    return LoadCustomers(context=arguments.context, file=arguments.settings.reference_file(CUSTOMERS.name))


def normalize(arguments: StepArguments) -> Step:
    """Build the step that normalizes events to orders."""
    from etl_assets.orders.steps.normalize import Normalize

    return Normalize(context=arguments.context, mode=arguments.mode)


def load_warehouse(arguments: StepArguments) -> Step:
    """Build the step that loads orders into the warehouse."""
    from etl_assets.orders.steps.load_warehouse import LoadWarehouse

    return LoadWarehouse(context=arguments.context, mode=arguments.mode)


def fold_status(arguments: StepArguments) -> Step:
    """Build the step that folds warehouse rows to the status of each order."""
    from etl_assets.orders.steps.fold_status import FoldStatus

    return FoldStatus(context=arguments.context, mode=arguments.mode)


def audit(arguments: StepArguments) -> Step:
    """Build the step that records the outcome of each record at each stage."""
    from etl_assets.orders.steps.audit import Audit

    return Audit(context=arguments.context, mode=arguments.mode)
