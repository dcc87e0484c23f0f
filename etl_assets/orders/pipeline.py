"""The orders pipeline: order events from landing files become warehouse rows and the status of each order.

Belongs here: the declaration. Does not belong here: the tables (`tables/`), and the work of the steps
(`steps/`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etl_assets.ingest.build_step import ingest_files
from etl_assets.orders import build_steps as steps
from etl_assets.orders.invariants import all_committed, nothing_lost
from etl_assets.orders.tables.audit_log import AUDIT_LOG
from etl_assets.orders.tables.customers import CUSTOMERS
from etl_assets.orders.tables.exceptions import NORMALIZED_ORDERS_EXCEPTIONS, RAW_EVENTS_EXCEPTIONS
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS
from etl_assets.orders.tables.order_status_view import ORDER_STATUS_VIEW
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS
from etl_assets.pipelines.invariant import Invariant
from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.pipelines.stage import Stage
from etl_assets.pipelines.undo_policy import KeptValues, UndoPolicy
from etl_assets.steps.invariants import has_dense_offsets

if TYPE_CHECKING:
    from etl_assets.delta.table import Table
    from etl_assets.observability.history import History
    from etl_assets.observability.traced_records import TracedRecord
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import Settings

_ACKNOWLEDGED = UndoPolicy(
    refusal="what it has was acknowledged, and its files would not be read again",
    fix="to make the tables after it again: `etl-assets reprocess`; to take an event back send one that says"
    " so; to go back to a backup see docs/operations.md",
)
_MADE_UP_EVENTS = 200
_REJECTS = tuple(contract.name for contract in (RAW_EVENTS_EXCEPTIONS, NORMALIZED_ORDERS_EXCEPTIONS))


def _replayed(domain: FailureDomain, days: Sequence[dt.date]) -> Sequence[KeptValues]:
    """Return the rows that an undo leaves: rejects whose record was replayed.

    The dead letter of the first attempt is derived from them.
    """
    from etl_assets.sources.replays import replayed_events

    events = replayed_events(domain, days)
    return [KeptValues(column="event_id", values=frozenset(each.event_id for each in events))]


def _file_read_last(table: Table, version: int) -> Mapping[str, Any]:
    """Return the reference file read last as a fact of an undo's commit.

    Without it the next run would read the file again, and bring back its rows.
    """
    from etl_assets.orders.steps.load_customers import FILE, file_read_last

    seen = file_read_last(table, version)
    return {} if seen is None else {FILE: seen}


def _missing_rows(domain: FailureDomain) -> Mapping[str, Mapping[str, int]]:
    """Return the rows that tables lack although they have read their input."""
    from etl_assets.orders.missing_rows import not_committed, not_normalized

    return {NORMALIZED_ORDERS.name: not_normalized(domain), WAREHOUSE_ROWS.name: not_committed(domain)}


def _history(settings: Settings, event_id: str) -> History | None:
    """Return the history of an event; None if no table has its id."""
    from etl_assets.orders.event_history import tell

    return tell(settings.placement().reader(), settings.landing_path, event_id)


def _traced(settings: Settings, trace_id: str) -> Iterator[TracedRecord]:
    """Yield the events of a trace."""
    from etl_assets.orders.traced_events import find_traced_events

    return find_traced_events(settings.placement().reader(), trace_id)


def _made_up_input(settings: Settings, day: dt.date, seed: int) -> None:
    """Write a few generated events into the landing folder, some of them faulty."""
    from etl_assets.orders.generator.faults import FaultRates
    from etl_assets.orders.generator.generate import EventsSpec, generate

    rates = FaultRates(duplicates=0.02, invalid_payloads=0.02)
    generate(
        EventsSpec(events=_MADE_UP_EVENTS, start=day, days=1, seed=seed, rates=rates), settings.landing_path
    )


ORDERS = Pipeline(
    name="orders",
    reference=(
        Stage(
            table=CUSTOMERS,
            build_step=steps.load_customers,
            group="reference",
            undo=UndoPolicy(keep_facts=_file_read_last),
        ),
    ),
    path=(
        Stage(
            table=RAW_EVENTS,
            build_step=ingest_files(RAW_EVENTS.name),
            group="ingest",
            source=steps.order_events,
            reads_landing=True,
            label="ingest",
            placement=PlacementClass.INGEST,
            rejects=RAW_EVENTS_EXCEPTIONS,
            undo=_ACKNOWLEDGED,
            undo_of_rejects=_ACKNOWLEDGED,
        ),
        Stage(
            table=NORMALIZED_ORDERS,
            build_step=steps.normalize,
            group="transform",
            inputs=(RAW_EVENTS.name,),
            lookups=(CUSTOMERS.name,),
            label="normalize",
            takes_replays=True,
            figures=("normalized",),
            rejects=NORMALIZED_ORDERS_EXCEPTIONS,
            undo_of_rejects=UndoPolicy(
                refusal=f"it belongs to the rows of {NORMALIZED_ORDERS.name}",
                fix=f"restore {NORMALIZED_ORDERS.name}, or reprocess the days: the exceptions go along",
                keep_rows=_replayed,
            ),
        ),
        Stage(
            table=WAREHOUSE_ROWS,
            build_step=steps.load_warehouse,
            group="sink",
            placement=PlacementClass.SINK,
            inputs=(NORMALIZED_ORDERS.name,),
            figures=("committed",),
        ),
    ),
    derived=(
        Stage(
            table=ORDER_STATUS_VIEW,
            build_step=steps.fold_status,
            group="sink",
            placement=PlacementClass.SINK,
            inputs=(WAREHOUSE_ROWS.name,),
        ),
        Stage(
            table=AUDIT_LOG,
            build_step=steps.audit,
            group="observe",
            inputs=(RAW_EVENTS.name, NORMALIZED_ORDERS.name, WAREHOUSE_ROWS.name, *_REJECTS),
        ),
    ),
    counted=(RAW_EVENTS.name, WAREHOUSE_ROWS.name),
    sensor="landing_files",
    missing_rows=_missing_rows,
    invariants=(
        has_dense_offsets(RAW_EVENTS.name),
        has_dense_offsets(NORMALIZED_ORDERS.name),
        Invariant(table=NORMALIZED_ORDERS.name, name="nothing_lost", evaluate=nothing_lost),
        Invariant(table=WAREHOUSE_ROWS.name, name="all_committed", evaluate=all_committed),
    ),
    history=_history,
    traced=_traced,
    made_up_input=_made_up_input,
    reprocess_from=NORMALIZED_ORDERS.name,
)
