"""What versions of captured tables hold, each with the place in the log up to which it has every change.

Belongs here: reading versions, and comparing them with what the source had there. Does not belong here: what
the source had (`audited.py`).
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from deltalake import DeltaTable

from etl_assets.delta.log.cursor import read_cursors
from etl_assets.delta.table import Table
from etl_assets.sources.captures.phases import TablePhase
from etl_assets.sources.captures.table_states import CapturedTableState
from etl_assets.sources.positions import read_positions
from etl_assets.sources.postgres_cdc.log_position import LogPosition
from etl_assets.steps.placing import place
from etl_assets.steps.step import platform_table
from etl_assets_tests.sources.audited import Audited, Key, Rows
from etl_assets_tests.sources.captured import CAPTURE, Captured


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """A version.

    Attributes:
        number: Its number.
        lsn: It has the changes of the transactions that ended at or before this place, and no others.
        read: Returns its rows.
    """

    number: int
    lsn: int
    read: Callable[[], Rows]


def record_versions(shop: Captured, table: str, keys: tuple[str, ...]) -> Iterator[TableVersion]:
    """Yield what the accepted records of a table say, for each version of them that is complete."""
    source = _table(shop, f"{CAPTURE}_{table}_source")
    state = shop.states()[table]
    rows = sorted(shop.home.rows(source.name), key=lambda row: (row["batch_id"], row["offset"]))
    changes, held = iter(rows), _Folded(keys)
    ahead = next(changes, None)
    newest = source.version() or 0
    for version in range(newest + 1):
        while ahead is not None and ahead["batch_id"] <= version:
            held.apply(json.loads(ahead["record"], parse_float=Decimal))
            ahead = next(changes, None)
        lsn = complete_at(read_positions(source, version), state)
        if version == newest and state.phase is TablePhase.READY:
            spool = shop.reader.spool.state()
            assert spool is not None  # it is ready
            # Also where nothing came after its copy. After a kill the position may be ahead of it.
            lsn = max(lsn or 0, shop.reader.committed_lsn(state, spool))
        if lsn is not None:
            yield TableVersion(number=version, lsn=lsn, read=held.rows)


def table_versions(shop: Captured, table: str, keys: tuple[str, ...]) -> Iterator[TableVersion]:
    """Yield the versions of a captured table that are complete, as delta-rs reads them."""
    source, found = _table(shop, f"{CAPTURE}_{table}_source"), _table(shop, f"{CAPTURE}_{table}")
    state = shop.states()[table]
    for version in range(found.version() + 1):
        read = read_cursors(found, source.name, [None], version)[None]
        lsn = None if read < 0 else complete_at(read_positions(source, read), state)
        if lsn is not None:
            yield TableVersion(
                number=version, lsn=lsn, read=lambda each=version: _read(found.path, each, keys)
            )


def direct_versions(shop: Captured, table: str, keys: tuple[str, ...]) -> Iterator[TableVersion]:
    """Yield the complete versions of a captured table whose changes are applied without records."""
    found, state = _table(shop, f"{CAPTURE}_{table}"), shop.states()[table]
    for version in range(found.version() + 1):
        if (lsn := complete_at(read_positions(found, version), state)) is not None:
            yield TableVersion(
                number=version, lsn=lsn, read=lambda each=version: _read(found.path, each, keys)
            )


def complete_at(positions: Any, state: CapturedTableState) -> int | None:
    """Return the place that a table with these positions is equal to; None while it is being copied."""
    position = LogPosition.of(positions)
    if position is None or position.is_copying or position.copy_number != state.copies:
        return None
    return position.lsn if position.lsn >= state.catchup_lsn else None


def expect_equal(audit: Audited, table: str, versions: Iterable[TableVersion]) -> Counter[str]:
    """Compare versions with what the source had at their places, row by row; return what was compared."""
    compared: Counter[str] = Counter()
    by_place: dict[int, list[int]] = {}
    found = {each.number: (each.lsn, plain_rows(each.read())) for each in versions}
    for number, (lsn, _) in found.items():
        by_place.setdefault(lsn, []).append(number)
    for lsn, expected in audit.states(table, by_place):
        wanted = plain_rows(expected)
        for number in by_place[lsn]:
            rows = found[number][1]
            _expect_same(f"{table}, version {number}, at {lsn:X}", rows, wanted)
            compared += Counter(versions=1, rows=len(rows))
    return compared


def plain_rows(rows: Rows) -> dict[Key, dict[str, Any]]:
    """Return rows with values that compare equal however they were written; columns of nulls are left out."""
    return {
        tuple(map(str, key)): {name: _plain(name, value) for name, value in row.items() if value is not None}
        for key, row in rows.items()
    }


def _expect_same(what: str, rows: dict[Key, Any], wanted: dict[Key, Any]) -> None:
    if rows == wanted:
        return
    missing, more = wanted.keys() - rows.keys(), rows.keys() - wanted.keys()
    other = {key: (rows[key], wanted[key]) for key in rows.keys() & wanted.keys() if rows[key] != wanted[key]}
    raise AssertionError(
        f"{what}: lacks {sorted(missing)[:5]}, should not have {sorted(more)[:5]},"
        f" and {len(other)} rows differ: {list(other.items())[:3]}"
    )


def _plain(name: str, value: Any) -> Any:
    match name:
        case "amount":
            return Decimal(str(value))
        case "value":
            return float(value)
        case "sold" | "mtime":
            at = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(value)
            return at.astimezone(dt.UTC) if at.tzinfo else at.replace(tzinfo=dt.UTC)
        case "since":
            return str(value)
    return int(value) if isinstance(value, Decimal) else value


class _Folded:
    """Changes applied by their places in the log, in whichever order they arrive."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = keys
        self._changes: list[tuple[tuple[int, int, int], dict[str, Any]]] = []

    def apply(self, change: dict[str, Any]) -> None:
        at = change["postgres.lsn"], change["postgres.sequence"], len(self._changes)
        self._changes.append((at, change))

    def rows(self) -> Rows:
        """Return the rows, with what a change lacks from the row that it has changed."""
        self._changes.sort(key=lambda each: each[0])
        rows, gone = Rows(), Rows()
        for _, change in self._changes:
            kind = change["postgres.change"]
            if kind == "truncate":
                rows.clear()
                continue
            key = tuple(change[name] for name in self._keys)
            if kind != "upsert":
                gone[key] = rows.pop(key, {})
                continue
            new = {name: value for name, value in change.items() if not name.startswith("postgres.")}
            if lacks := json.loads(change.get("postgres.unavailable") or "{}"):
                former = lacks.pop("", None)
                before = rows.get(key) if former is None else gone[_key_of(former, self._keys)]
                new |= {name: (before or {}).get(name) for name in lacks}
            rows[key] = new
        return rows


def _key_of(former: str, keys: tuple[str, ...]) -> Key:
    found = json.loads(former, parse_float=Decimal)
    return tuple(found[name] for name in keys)


def _table(shop: Captured, name: str) -> Table:
    return platform_table(name, place(shop.settings.placement(), name))


def _read(path: Any, version: int, keys: tuple[str, ...]) -> Rows:
    found = DeltaTable(str(path), version=version).to_pyarrow_dataset().to_table()
    own = [
        name
        for name in found.column_names
        if not name.startswith(
            ("_", "batch_", "partition_date", "postgres", "lsn_in_source", "unavailable_in_source")
        )
    ]
    return {tuple(row[key] for key in keys): row for row in found.select(own).to_pylist()}
