"""What knows orders is in `etl_assets/orders/`, or will be: no module outside learns of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import etl_assets
from etl_assets.orders.event_contracts import EVENT_CONTRACTS
from etl_assets.orders.pipeline import ORDERS

PACKAGE = Path(etl_assets.__file__).parent
OUTSIDE = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if PACKAGE / "orders" not in path.parents and path != PACKAGE / "installed.py"
)
NOT_YET_GENERAL = frozenset(
    {
        # They name orders until there is something general in their place.
        "build.py",
        "cli/demo.py",
        "cli/events.py",
        "cli/reprocess.py",
        "cli/restore.py",
        "cli/sql.py",
        "cli/table_path.py",
        "cli/run.py",
        "cli/tables.py",
        "cli/trace.py",
        "contracts/reasons.py",
        "follow/reports.py",
        "installed.py",
        "io_managers/delta_upsert.py",
        "metadata.py",
        "observability/event_history.py",
        "observability/history_entries.py",
        "observability/order_statuses.py",
        "observability/outcomes.py",
        "rehearsal.py",
        "settings/landing.py",
        "settings/platform.py",
        "settings/runs.py",
        "sources/replays.py",
        "steps/changes.py",
    }
)
TABLES = {contract.name for stage in ORDERS.stages for contract in stage.tables} - {
    "dead_letters",
    "audit_log",
}
NAMES = re.compile(
    rf"etl_assets\.orders\b|\b(?:{'|'.join(sorted({*TABLES, *EVENT_CONTRACTS}, key=str))})\b", re.IGNORECASE
)


def knows_orders(path: Path) -> bool:
    return NAMES.search(path.read_text("utf-8")) is not None


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_outside_knows_no_table_and_no_event_of_orders(path):
    name = str(path.relative_to(PACKAGE))
    if name in NOT_YET_GENERAL:
        assert knows_orders(path), f"{name} knows nothing of orders any more: take it off the list"
    else:
        assert not knows_orders(path), "what knows orders belongs in etl_assets/orders"
