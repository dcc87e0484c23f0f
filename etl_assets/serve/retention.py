"""Removal of journal files that were read, some days after they came.

A file is removed from every domain once the acknowledged table has read it. One that a domain keeps because
it is down is copied back, known as read, and removed in the next round.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from pathlib import Path

from etl_assets.errors import EtlAssetsError, Unanswered
from etl_assets.mirroring.stores.circuit_breaker import ask
from etl_assets.placement.domains import FailureDomain, Placement
from etl_assets.serve.service import Service
from etl_assets.sources.http.catch_up import journal_folder
from etl_assets.sources.http.journal_file import HTTP, JournalName, journal_path
from etl_assets.sources.http.journal_lines import JournalLines
from etl_assets.sources.landing import Folders
from etl_assets.sources.ledger import Ledger
from etl_assets.steps.step import platform_table

logger = logging.getLogger("etl_assets.serve")
ROUND_SECONDS = 3_600.0
_FAR_FUTURE_NS = 1 << 62


async def keep_removing(service: Service) -> None:
    """Remove old files of all pipelines, round by round."""
    while True:
        await asyncio.sleep(ROUND_SECONDS)
        before = service.clock().date() - dt.timedelta(days=service.settings.serve.keep_journal_days)
        for pipeline in service.http_sources():
            try:
                placement = service.settings.placement()
                await asyncio.to_thread(remove_read, placement, pipeline, before)
            except (EtlAssetsError, OSError) as error:
                logger.warning("old journal files of %s stay for now: %s", pipeline, error)


def remove_read(placement: Placement, pipeline: str, before: dt.date) -> int:
    """Remove the files of days before a day that the pipeline has read; return their number."""
    reader = placement.reader()
    ledger = Ledger.of(platform_table(f"{pipeline}_source", reader))
    folders = Folders(source=HTTP, path=journal_folder(reader, pipeline), format=JournalLines())
    removed = 0
    for day, _ in sorted(folders.days()):
        if day >= before:
            continue
        files = folders.list_day(day, now_ns=_FAR_FUTURE_NS, settle_seconds=0).files
        unread = set(ledger.unread(files))
        names = [file.name for file in files if file not in unread]
        for domain in placement.domains:
            _remove(domain, journal_path(domain.root, pipeline) / day.isoformat(), names)
        removed += len(names)
    return removed


def _remove(domain: FailureDomain, folder: Path, names: list[str]) -> None:
    def remove() -> None:
        for name in names:
            if JournalName.parse(name) is not None:
                (folder / name).unlink(missing_ok=True)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    try:
        # Under a name of its own: a slow removal must not keep the journal from being written.
        ask(f"old files in {folder}", remove, max(60.0, domain.timeout_seconds))
    except (OSError, Unanswered) as error:
        logger.warning("old journal files in %s stay for now: %s", domain.name, error)
