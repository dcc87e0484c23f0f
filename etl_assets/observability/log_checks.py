"""Checks of the logs that pipelines and captures follow: what their slots hold back, and tables in error.

Belongs here: findings for `etl-assets doctor`. Does not belong here: what a server lacks before the first run
(`cdc_checks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from etl_assets.captures import table_views
from etl_assets.errors import EtlAssetsError
from etl_assets.observability.findings import Finding, fail, ok, warn
from etl_assets.pipelines.capture_files import usable_captures
from etl_assets.pipelines.postgres_cdc_spec import PostgresCdcSource
from etl_assets.sources.captures.connect import capture_reader
from etl_assets.sources.captures.phases import TablePhase
from etl_assets.sources.postgres_cdc.connect import open_log

if TYPE_CHECKING:
    from etl_assets.settings import Settings
    from etl_assets.sources.postgres_cdc.log_server import LogServer

SLOTS, CAPTURES = "replication slots", "captures"
HELD_BYTES = 1 << 30
"""A slot that holds back more of the server's log than this is worth a look, before the disk is full."""
_WORK = "start `etl-assets worker`, or `etl-assets run`, which reads it"


def check_slots(settings: Settings) -> Iterator[Finding]:
    """Check what the slots of pipelines and captures hold back on their servers."""
    for owner, server in _servers(settings):
        with closing(server):
            yield _slot(owner, server)


def check_captures(settings: Settings) -> Iterator[Finding]:
    """Name the captured tables that are in error, each with what to do."""
    for name in sorted(usable_captures(settings.home)):
        tables = list(table_views(settings, name, asks=False))
        for each in tables:
            if (error := each.state.error) is not None:
                fix = f"{error.solution}; then ({error.retry}): {each.state.ended_by()}"
                said = f"{name}: {each.state.table}: {error.reason}"
                yield (fail if each.state.attempts is None else warn)(CAPTURES, said, fix)
        ready = sum(each.state.phase is TablePhase.READY for each in tables)
        yield ok(CAPTURES, f"{name}: {ready:,} of {len(tables):,} tables are ready")


def _servers(settings: Settings) -> Iterator[tuple[str, LogServer]]:
    for file in settings.installed().files:
        spec = file.spec
        if spec is None or not isinstance(spec.source, PostgresCdcSource) or spec.source.capture is not None:
            continue
        yield spec.name, open_log(spec, spec.source, settings).server
    for name, capture in sorted(usable_captures(settings.home).items()):
        yield name, capture_reader(settings, capture).server


def _slot(owner: str, server: LogServer) -> Finding:
    try:
        with server.asked():
            slot = server.slot_state()
    except EtlAssetsError as error:
        return fail(SLOTS, f"{owner}: {error.message}", error.fix)
    if slot is None:
        return ok(SLOTS, f"{owner}: the slot {server.slot} does not exist; its first run makes it")
    if slot.is_lost:
        return fail(
            SLOTS,
            f"{owner}: the slot {server.slot} is lost: the server removed log that was not read",
            "`on_lost: copy` copies again; see docs/operations.md, SourceLost",
        )
    held = f"{owner}: the slot {server.slot} holds back {slot.held_bytes / (1 << 20):,.0f} MiB of log"
    if slot.may_be_lost:
        return fail(SLOTS, f"{held}, more than the server keeps: it may be lost at any time", _WORK)
    if slot.held_bytes > HELD_BYTES:
        return warn(SLOTS, f"{held} of {server.name}, whose disk it fills until it is read", _WORK)
    return ok(SLOTS, held)
