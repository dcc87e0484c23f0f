"""Checks of a publication: what it leaves out of the tables that are to be read.

Belongs here: pure decisions, and how names are written. Does not belong here: the server and its tables
(`cdc_checks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from etl_assets.observability.findings import Finding, fail, ok, warn
from etl_assets.sources.postgres_cdc.server_state import PublicationState, SourceTableState
from etl_assets.sources.sql.postgres_text import quoted

if TYPE_CHECKING:
    from etl_assets.observability.cdc_checks import CdcTarget

PUBLICATION = "publication"
_SHOWN = 5


def published_operations(found: PublicationState) -> Iterator[Finding]:
    """Yield what a publication leaves out of every table."""
    missing = [each for each in ("insert", "update", "delete", "truncate") if each not in found.operations]
    alter = f"ALTER PUBLICATION {quoted_or_plain(found.name)} SET"
    if missing:
        yield fail(
            PUBLICATION,
            f"{found.name} leaves out {', '.join(missing)}",
            f"{alter} (publish = 'insert, update, delete, truncate')",
        )
    if found.has_all_tables:
        yield warn(
            PUBLICATION,
            f"{found.name} has all tables of the database, also those that are made later: each update of a"
            " table without a primary key fails",
            "make one FOR TABLE with the tables that are read",
        )


def published_tables(
    found: PublicationState, wanted: list[SourceTableState], target: CdcTarget
) -> Iterator[Finding]:
    """Yield which tables a publication lacks, wholly or in part."""
    alter = f"ALTER PUBLICATION {quoted_or_plain(found.name)}"
    there = {each.name: each for each in found.tables}
    missing = [each for each in wanted if each.name not in there]
    for table in missing:
        if table.kind == "p" and not found.via_root:
            yield fail(
                PUBLICATION,
                f"{found.name} has changes of {table.name} under the names of its partitions, if at all",
                f"{alter} SET (publish_via_partition_root = true)",
            )
        elif target.adds_tables and table.is_owned:
            yield ok(PUBLICATION, f"{found.name} lacks {table.name}, and the next discovery adds it")
        elif target.follows_published:
            yield warn(
                PUBLICATION,
                f"{found.name} lacks {table.name}, so it is not followed",
                f"{alter} ADD TABLE {table.name}, or add it to `exclude`",
            )
        else:
            yield fail(PUBLICATION, f"{found.name} lacks {table.name}", f"{alter} ADD TABLE {table.name}")
    for table in wanted:
        if (published := there.get(table.name)) is None:
            continue
        if published.has_filter:
            yield fail(
                PUBLICATION,
                f"{found.name} leaves out rows of {table.name} by a condition, which the first copy reads",
                f"{alter} DROP TABLE {table.name}; {alter} ADD TABLE {table.name}",
            )
        known = [each.name for each in table.columns if not each.is_generated]
        if published.columns is not None and (left_out := [n for n in known if n not in published.columns]):
            yield warn(
                PUBLICATION,
                f"{found.name} leaves out columns of {table.name}: {some(left_out)}",
                f"leave them out of the pipeline, or {alter} DROP TABLE {table.name}; {alter} ADD TABLE"
                f" {table.name}",
            )
    if not missing:
        names = [each.name for each in wanted] or list(there)
        yield ok(PUBLICATION, f"{found.name} has {some(names) or 'no tables'}")


def own_tables_in(found: PublicationState, names: frozenset[str]) -> Iterator[Finding]:
    """Yield the tables of a publication in which the platform keeps its own state."""
    own = [each.name for each in found.tables if each.name.rpartition(".")[2] in names]
    if not own:
        return
    drop = f"ALTER PUBLICATION {quoted_or_plain(found.name)} DROP TABLE {', '.join(own)}"
    if found.has_all_tables:
        drop = "make one FOR TABLE with the tables that are read"
    yield warn(PUBLICATION, f"{found.name} has tables of the platform itself: {some(own)}", drop)


def quoted_or_plain(name: str) -> str:
    """Return a name as `quote_ident` writes it, for names that are no keywords."""
    plain = name.isascii() and name.islower() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    return name if plain else quoted(name)


def some(names: list[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
