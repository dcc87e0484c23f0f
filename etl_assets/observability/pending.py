"""What is waiting to be read: days with unread landing files, without Spark."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from etl_assets.contracts.tables import RAW_EVENTS
from etl_assets.placement.policy import Stage
from etl_assets.sources.landing import LANDING, REPLAYS, Folders
from etl_assets.sources.ledger import Ledger
from etl_assets.sources.replays import INGEST, replays_folder
from etl_assets.sources.watch import WatchCursor, watch
from etl_assets.steps.placing import place
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.settings import Settings


def unread_days(settings: Settings, *, now: dt.datetime, settle_seconds: float) -> tuple[dt.date, ...]:
    """Every partition with closed, unread files."""
    domain = place(settings.placement(), Stage.INGEST, RAW_EVENTS.name)
    found = watch(
        (
            Folders(source=LANDING, path=settings.landing_path),
            Folders(source=REPLAYS, path=replays_folder(domain, INGEST)),
        ),
        Ledger.of(platform_table(RAW_EVENTS.name, domain)),
        WatchCursor(),
        first_day=settings.start_date,
        now=now,
        settle_seconds=settle_seconds,
        most_days=1_000_000,
    )
    return found.ready
