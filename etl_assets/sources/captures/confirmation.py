"""How far the server may forget its log.

Belongs here: the decision. Does not belong here: telling the server (`log_reader.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProgress:
    """How far a table is.

    Attributes:
        committed_lsn: Its changes up to here are committed.
        unread_lsn: End of the reading of the log that its oldest changes in the spool are from; None: it has
            none.
        is_held_up: Whether it is in error, and not only for a short time.
        was_only_spooled: Whether it had changes in the spool alone before.
    """

    committed_lsn: int
    unread_lsn: int | None = None
    is_held_up: bool = False
    was_only_spooled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """What may be confirmed.

    Attributes:
        lsn: The server may forget what is before.
        only_spooled: Numbers of the tables that then have changes in the spool alone.
    """

    lsn: int
    only_spooled: frozenset[int]


def confirmable(
    tables: Iterable[TableProgress], spool_lsn: int, max_held_bytes: int, *, confirmed_lsn: int = 0
) -> Confirmation:
    """Return how far the log may be confirmed: to the oldest commit of a table.

    A table in error does not hold the log back, and no table does so by more than `max_held_bytes`: the
    rest of its changes is on the disk in the spool. Without the limit one table that does not run would
    fill the disk of the server that everyone else uses.

    Args:
        tables: The tables that are followed.
        spool_lsn: Up to here the log is in the spool.
        max_held_bytes: How much log a table may hold back.
        confirmed_lsn: Up to here the server may have forgotten its log already.
    """
    found = list(tables)
    holding = [
        each.committed_lsn
        for each in found
        if not each.is_held_up and spool_lsn - each.committed_lsn <= max_held_bytes
    ]
    wanted = min([spool_lsn, *holding])
    lsn = max(confirmed_lsn, wanted)
    return Confirmation(
        lsn=lsn,
        only_spooled=frozenset(
            number
            for number, each in enumerate(found)
            if each.committed_lsn < wanted
            or (each.unread_lsn is not None and each.unread_lsn <= lsn)
            or (each.was_only_spooled and each.committed_lsn < lsn)
        ),
    )
