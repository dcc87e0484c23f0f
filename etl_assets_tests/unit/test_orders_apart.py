"""What knows orders is in `etl_assets/orders/`: no module outside does but the one that names the built-in
pipelines.
"""

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
    if PACKAGE / "orders" not in path.parents and path != PACKAGE / "built_in.py"
)
TABLES = {contract.name for stage in ORDERS.stages for contract in stage.tables} - {"dead_letters"}
NAMES = re.compile(
    rf"etl_assets\.orders\b|\b(?:{'|'.join(sorted({*TABLES, *EVENT_CONTRACTS}, key=str))})\b", re.IGNORECASE
)


def knows_orders(path: Path) -> bool:
    return NAMES.search(path.read_text("utf-8")) is not None


def test_the_module_that_names_the_built_in_pipelines_has_no_table_of_theirs():
    found = NAMES.findall((PACKAGE / "built_in.py").read_text("utf-8"))
    assert set(found) == {"etl_assets.orders"}


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_outside_knows_no_table_and_no_event_of_orders(path):
    assert not knows_orders(path), "what knows orders belongs in etl_assets/orders"
