"""A platform for tests: files in, steps run in the order of the data path, tables out. No Dagster."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etl_assets.contracts.envelope import Limits
from etl_assets.ingest.envelope_records import EnvelopeRecords
from etl_assets.ingest.file_source import FileSource
from etl_assets.ingest.step import Ingest
from etl_assets.orders.event_contracts import EVENT_CONTRACTS
from etl_assets.orders.steps.audit import Audit
from etl_assets.orders.steps.fold_status import FoldStatus
from etl_assets.orders.steps.load_customers import LoadCustomers
from etl_assets.orders.steps.load_warehouse import LoadWarehouse
from etl_assets.orders.steps.normalize import Normalize
from etl_assets.placement.domains import FailureDomain
from etl_assets.sources.landing import LANDING, REPLAYS, Folders
from etl_assets.sources.replays import INGEST, replays_folder
from etl_assets.steps.collect_dead_letters import CollectDeadLetters
from etl_assets.steps.step import ReadMode, Step, StepContext, StepReport
from etl_assets_tests.reference.tables import CATALOG, local_domain

DAY = dt.date(2026, 1, 5)
NEXT_DAY = dt.date(2026, 1, 6)
NOW = dt.datetime(2026, 1, 7, 12, tzinfo=dt.UTC)
LIMITS = Limits(max_record_bytes=1 << 20, earliest_micros=946_684_800_000_000, skew_micros=86_400_000_000)
RECORDS = EnvelopeRecords(limits=LIMITS)


def event(number: int = 1, *, day: dt.date = DAY, **fields: Any) -> dict[str, Any]:
    """An OrderCreated event as sent; `fields` replace what it has, a field given as None is left out."""
    sent = {
        "event_id": f"event-{number}",
        "tenant_id": "acme",
        "aggregate_id": f"order-{number}",
        "event_type": "OrderCreated",
        "payload": {"customer_id": f"customer-{number}", "amount": "12.50", "currency": "EUR"},
        "timestamp": f"{day.isoformat()}T10:00:00Z",
        "schema_version": 1,
    }
    return {name: value for name, value in {**sent, **fields}.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Tables in `root`, files in `landing`, a session, and event contracts that a test may extend."""

    root: Path
    landing: Path
    session: Callable[[], Any]
    contracts: Mapping[Any, Any] = field(default_factory=lambda: EVENT_CONTRACTS)
    max_batch_bytes: int = 1 << 30
    works_in: FailureDomain | None = None
    clock: Callable[[], dt.datetime] = lambda: NOW

    @property
    def domain(self) -> FailureDomain:
        return self.works_in or local_domain(self.root)

    @property
    def context(self) -> StepContext:
        return StepContext(session=self.session, domain=self.domain, clock=self.clock, lock_wait_seconds=30)

    def land(
        self, lines: Iterable[dict[str, Any] | str | bytes], *, day: dt.date = DAY, name: str = "a.jsonl"
    ) -> Path:
        """Write a landing file as a well-behaved producer does: whole, then renamed."""
        folder = self.landing / day.isoformat()
        folder.mkdir(parents=True, exist_ok=True)
        content = b"".join(_encode(line) + b"\n" for line in lines)
        hidden = folder / f".{name}"
        hidden.write_bytes(content)
        return hidden.rename(folder / name)

    def steps(self, mode: ReadMode = ReadMode.INCREMENTAL) -> dict[str, Step]:
        """Every step by the table it writes, in the order of the data path."""
        context = self.context
        return {
            "customers": LoadCustomers(context=context, file=self.landing / "_reference" / "customers.csv"),
            "raw_events": Ingest(
                context=context,
                stage=CATALOG.stage("raw_events"),
                source=FileSource(
                    folders=(
                        Folders(source=LANDING, path=self.landing),
                        Folders(source=REPLAYS, path=replays_folder(self.domain, INGEST)),
                    ),
                    records=RECORDS,
                    settle_seconds=0,
                    max_batch_bytes=self.max_batch_bytes,
                ),
                mode=mode,
                max_batch_bytes=self.max_batch_bytes,
            ),
            "normalized_orders": Normalize(context=context, mode=mode, contracts=self.contracts),
            "warehouse_rows": LoadWarehouse(context=context, mode=mode),
            "order_status_view": FoldStatus(context=context, mode=mode),
            "dead_letters": CollectDeadLetters(context=context, mode=mode),
            "audit_log": Audit(context=context, mode=mode),
        }

    def run(
        self,
        days: Sequence[dt.date] = (DAY,),
        *,
        mode: ReadMode = ReadMode.INCREMENTAL,
        only: Sequence[str] | None = None,
    ) -> dict[str, StepReport]:
        """Run the steps (or some, by table) for days; the reports by table."""
        return {
            name: step.run(list(days))
            for name, step in self.steps(mode).items()
            if only is None or name in only
        }

    def rows(self, table: str, *, order_by: str | None = None) -> list[dict[str, Any]]:
        """All rows of a table, read by delta-rs, as dictionaries; empty when it does not exist."""
        found = self.context.table(table)
        if (version := found.version()) < 0:
            return []
        from deltalake import DeltaTable

        rows = DeltaTable(str(found.path), version=version).to_pyarrow_dataset().to_table().to_pylist()
        return sorted(rows, key=lambda row: row[order_by]) if order_by else rows


def _encode(line: dict[str, Any] | str | bytes) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line)).encode()
