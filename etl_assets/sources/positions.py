"""Positions in a source, kept as transaction ids of the table that its records are stored in.

Belongs here: from positions to transaction ids and back. Transaction ids are facts of the commit that has the
rows. They last as long as the table, through checkpoints, truncated logs, compaction and mirroring. Does not
belong here: what a position means (`ranges.py`).

A number from 0 on is the version of one id. Any other JSON value is kept as its text, seven bytes to an id,
because a version is a number; the version of the first id is then negative and says how long the text is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from etl_assets.errors import EtlAssetsError

if TYPE_CHECKING:
    from etl_assets.delta.table import Table
    from etl_assets.sources.ranges import Positions

PREFIX = "position/"
"""Beginning of the transaction ids of positions."""
_PART = "#"
_BYTES = 7
_LARGEST = 2**63 - 1


def transactions_of(positions: Positions) -> dict[str, int]:
    """Return the transaction ids that keep positions."""
    found: dict[str, int] = {}
    for name, value in positions.items():
        if type(value) is int and 0 <= value <= _LARGEST:
            found[PREFIX + name] = value
            continue
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        found[PREFIX + name] = -len(text)
        for start in range(0, len(text), _BYTES):
            part = int.from_bytes(text[start : start + _BYTES])
            found[f"{PREFIX}{name}{_PART}{start // _BYTES}"] = part
    return found


def positions_in(transactions: Mapping[str, int]) -> dict[str, Any]:
    """Return the positions that transaction ids keep; those without a value are left out."""
    found: dict[str, Any] = {}
    for key, version in transactions.items():
        if not key.startswith(PREFIX):
            continue
        name = key.removeprefix(PREFIX)
        if _is_part(name, transactions):
            continue
        value = version if version >= 0 else json.loads(_text(key, -version, transactions))
        if value is not None:
            found[name] = value
    return found


def positions_after(positions: Positions, end: Positions) -> dict[str, Any]:
    """Return the positions that a table has once a range that ends at `end` is committed."""
    return positions_in(transactions_of({**positions, **end}))


def _is_part(name: str, transactions: Mapping[str, int]) -> bool:
    """Return whether a name is that of a part of another position's text."""
    whole, mark, number = name.rpartition(_PART)
    return bool(mark) and number.isdigit() and PREFIX + whole in transactions


def _text(key: str, size: int, transactions: Mapping[str, int]) -> bytes:
    starts = range(0, size, _BYTES)
    return b"".join(
        transactions[f"{key}{_PART}{start // _BYTES}"].to_bytes(min(_BYTES, size - start)) for start in starts
    )


def read_positions(table: Table, version: int | None = None) -> dict[str, Any]:
    """Return the positions that a version of a table has, by default its newest. No Spark.

    Raises:
        EtlAssetsError: the table's log cannot be read here.
    """
    if (snapshot := table.snapshot(version)) is None:
        return {}
    if (transactions := snapshot.transactions()) is None:
        raise EtlAssetsError(
            f"the positions in the log of {table.name} cannot be read: entries of it are missing, or another"
            " program wrote checkpoints of several parts",
            fix="run again; if that does not help, `etl-assets doctor`",
            table=table.name,
        )
    return positions_in(transactions)
