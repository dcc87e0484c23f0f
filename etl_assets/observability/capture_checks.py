"""Checks of a PostgreSQL server before a capture begins: what all matched tables lack, and how to add it.

Belongs here: pure decisions about a capture. Does not belong here: those about single tables and the server
(`cdc_checks.py`), and tables in error while a capture runs (`log_checks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from etl_assets.observability.cdc_checks import IDENTITY, SETTINGS, TABLES, CdcTarget, check_cdc
from etl_assets.observability.findings import Finding, fail, ok, warn
from etl_assets.pipelines.capture_spec import CaptureSpec
from etl_assets.sources.postgres_cdc.server_state import ServerState
from etl_assets.sources.postgres_cdc.source_table import quoted_table


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedTables:
    """What the server says of a capture's tables.

    Attributes:
        tables: OIDs of the matched tables, by schema and name.
        keyless: Those that have no columns that identify a row.
        adds_tables: Whether the capture has made the publication, and so adds tables to it.
    """

    tables: Mapping[str, int]
    keyless: frozenset[str]
    adds_tables: bool


def capture_target(capture: CaptureSpec, found: MatchedTables, own_tables: frozenset[str]) -> CdcTarget:
    """Return what a capture reads."""
    return CdcTarget(
        publication=capture.publication,
        slot=capture.slot,
        makes_publication=True,
        own_tables=own_tables,
        copies=min(capture.max_copies, max(1, len(found.tables))),
        follows_published=True,
        adds_tables=found.adds_tables,
        failover=capture.failover,
    )


def check_capture(
    capture: CaptureSpec, state: ServerState, found: MatchedTables, own_tables: frozenset[str]
) -> Iterator[Finding]:
    """Yield what is right and wrong with a server for a capture.

    Args:
        capture: The capture.
        state: What the server says of itself and of the matched tables.
        found: The matched tables.
        own_tables: Names, without schemas, of the platform's own tables.
    """
    name = capture.name
    own = sorted(each for each in found.tables if each.rpartition(".")[2] in own_tables)
    if own:
        yield fail(
            TABLES,
            f"{name} matches tables of the platform itself, whose commits would be changes again:"
            f" {', '.join(own)}",
            f"add them to `exclude` in captures/{name}.yaml",
        )
    if found.tables:
        yield ok(TABLES, f"{name} matches {len(found.tables):,} tables")
    else:
        yield fail(
            TABLES,
            f"{name} matches no table of {state.database}: {', '.join(capture.tables)}",
            f"correct `tables` in captures/{name}.yaml",
        )
    kept = int(state.settings["max_slot_wal_keep_size"])
    if 0 <= kept << 20 < capture.max_held_bytes:
        yield warn(
            SETTINGS,
            f"max_slot_wal_keep_size is {kept} MB, less than the max_held_bytes of {name}"
            f" ({capture.max_held_bytes >> 20} MB): a table that lags may cost all of them the slot",
            f"raise max_slot_wal_keep_size, or set max_held_bytes to at most {max(1, kept) << 20}",
        )
    for each in sorted(found.keyless):
        yield fail(
            IDENTITY,
            f"{each} has no primary key and no unique index without nulls: its changes do not say which row"
            " they are of, and the capture shows it as errored",
            f"ALTER TABLE {quoted_table(each)} ADD PRIMARY KEY (...), or add it to `exclude`",
        )
    if found.tables:
        yield from check_cdc(state, capture_target(capture, found, own_tables))
