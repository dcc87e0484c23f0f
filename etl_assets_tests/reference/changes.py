"""What a table must hold that applies changes, in plain Python: the newest change of each key, over all of
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change.

    Attributes:
        kind: `U` for an upsert, `D` for a delete, `T` for a truncate.
        key: The key; None for a truncate.
        place: Its place in the sequence: the highest stands.
        value: The value of an upsert.
    """

    kind: str
    key: Any
    place: tuple[Any, ...]
    value: Any = None


def table_of(changes: Iterable[Change]) -> dict[Any, Change]:
    """Return the rows by their keys: the order of the changes has no meaning."""
    changes = list(changes)
    truncated = [each.place for each in changes if each.kind == "T"]
    rows: dict[Any, Change] = {}
    for each in (each for each in changes if each.kind != "T"):
        stands = rows.get(each.key)
        if stands is None or (each.place, each.kind == "D") > (stands.place, stands.kind == "D"):
            rows[each.key] = each
    return {
        key: each
        for key, each in rows.items()
        if each.kind == "U" and all(each.place >= place for place in truncated)
    }


def tombstones_of(changes: Iterable[Change]) -> dict[Any, tuple[Any, ...]]:
    """Return the newest delete of each key, and the newest truncate under the key None."""
    places: dict[Any, tuple[Any, ...]] = {}
    for each in changes:
        if each.kind in "DT":
            places[each.key] = max(places.get(each.key, each.place), each.place)
    return places
