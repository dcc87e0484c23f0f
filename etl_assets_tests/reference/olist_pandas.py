"""What a folder of real orders holds, computed by pandas straight from the CSV files.

Shares no code with the platform and takes other ways where there are any: fractions for decimals, pandas' own
time zones, integer cents. Belongs here: figures that tables and landed events are compared with.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd

ZONE = "America/Sao_Paulo"
#: Event type, its column in orders (canceled has none), its status and the time's name; lowest first.
STEPS = (
    ("OrderCreated", "order_purchase_timestamp", "created", "created_at"),
    ("PaymentProcessed", "order_approved_at", "paid", "paid_at"),
    ("ItemShipped", "order_delivered_carrier_date", "shipped", "shipped_at"),
    ("OrderDelivered", "order_delivered_customer_date", "delivered", "delivered_at"),
    ("OrderCanceled", None, "canceled", "canceled_at"),
)


def count_orders(folder: Path) -> int:
    """Orders with at least one event."""
    return len(times(folder).dropna(how="all"))


def count_events(folder: Path) -> dict[str, int]:
    """Events by type."""
    known = times(folder).notna().sum()
    return {event_type: int(known[name]) for event_type, _, _, name in STEPS}


def events_by_day(folder: Path) -> dict[date, int]:
    """Events by the UTC day on which they happened, which is the day they land on."""
    days = _utc_days(times(folder).stack())
    return days.groupby(days).size().to_dict()


def sums_by_day(folder: Path) -> dict[str, dict[date, Decimal]]:
    """Sums of the amounts of OrderCreated and PaymentProcessed by the UTC day of the event."""
    amounts = order_amounts(folder)
    return {
        "OrderCreated": _sums(amounts["order_total"], times(folder)["created_at"]),
        "PaymentProcessed": _sums(amounts["paid_total"], times(folder)["paid_at"]),
    }


def last_status(folder: Path) -> dict[str, str]:
    """The highest status of each order with at least one event, by order_id."""
    known = times(folder).notna().to_numpy()
    ranks = np.where(known, np.arange(len(STEPS)), -1).max(axis=1)
    orders = times(folder).index
    return {order: STEPS[rank][2] for order, rank in zip(orders, ranks, strict=True) if rank >= 0}


def order_amounts(folder: Path) -> pd.DataFrame:
    """By order_id: order_total and paid_total as Decimal in cents, None where the order has no such event."""
    moments = times(folder)
    items = _table(folder, "order_items")
    items["value"] = items["price"].map(Fraction) + items["freight_value"].map(Fraction)
    payments = _table(folder, "order_payments")
    payments["value"] = payments["payment_value"].map(Fraction)
    return pd.DataFrame(
        {
            "order_total": _totals(items, moments["created_at"]),
            "paid_total": _totals(payments, moments["paid_at"]),
        },
        dtype=object,
    )


def times(folder: Path) -> pd.DataFrame:
    """By order_id: created_at, paid_at, shipped_at, delivered_at and canceled_at in UTC, NaT where there is
    none.
    """
    orders = _table(folder, "orders").set_index("order_id")
    frame = pd.DataFrame({name: _utc(orders[column]) for _, column, _, name in STEPS if column})
    stopped = orders["order_status"].isin(["canceled", "unavailable"])
    frame["canceled_at"] = (frame.max(axis=1) + pd.Timedelta(seconds=1)).where(stopped)
    return frame


def tenants(folder: Path) -> dict[str, str]:
    """The tenant of each order by order_id: its customer's state in lower case, or unknown."""
    customers = _table(folder, "customers").set_index("customer_id")["customer_state"]
    orders = _table(folder, "orders").set_index("order_id")["customer_id"]
    states = orders.map(customers).fillna("").str.lower()
    return states.where(states != "", "unknown").to_dict()


def _table(folder: Path, name: str) -> pd.DataFrame:
    path = folder / f"{name}.csv"
    return pd.read_csv(path if path.exists() else f"{path}.gz", dtype=str, keep_default_na=False)


def _utc(local: pd.Series) -> pd.Series:
    """Local to UTC: the first of a time shown twice, and a skipped time an hour on."""
    naive = pd.to_datetime(local.where(local != ""), format="%Y-%m-%d %H:%M:%S")
    zoned = naive.dt.tz_localize(
        ZONE, ambiguous=np.ones(len(naive), dtype=bool), nonexistent=pd.Timedelta(hours=1)
    )
    return zoned.dt.tz_convert("UTC")


def _totals(parts: pd.DataFrame, moments: pd.Series) -> pd.Series:
    exact = parts.groupby("order_id")["value"].sum().to_dict()
    return pd.Series(
        [
            Decimal(round(exact.get(order, Fraction(0)) * 100)).scaleb(-2) if there else None
            for order, there in moments.notna().items()
        ],
        index=moments.index,
        dtype=object,
    )


def _sums(amounts: pd.Series, moments: pd.Series) -> dict[date, Decimal]:
    there = moments.notna()
    return amounts[there].groupby(_utc_days(moments[there])).sum().to_dict()


def _utc_days(moments: pd.Series) -> pd.Series:
    return moments.dt.date
