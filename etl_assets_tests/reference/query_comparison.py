"""The comparison of a query's rows with accepted records, one row after the other, for tests of
`sources/sql/comparison.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from etl_assets.contracts import canonical_json
from etl_assets.contracts.canonical_json import Refused


class Accepted(NamedTuple):
    """An accepted record of the query."""

    offset: int
    record: str
    fingerprint: str


class Compared:
    """What a load adds to the accepted records.

    Args:
        accepted: The records.
        id_fields: Fields that identify a row.
        order: As of `QueryComparison`.
    """

    def __init__(
        self,
        accepted: Iterable[Accepted],
        id_fields: Sequence[str],
        order: Callable[[Mapping[str, Any]], Any] | None,
    ) -> None:
        self._id_fields = id_fields
        self._newest: dict[bytes, tuple[tuple[Any, ...], Accepted]] = {}
        for each in accepted:
            record = orjson.loads(each.record)
            value = None if order is None else order(record)
            place = (value is not None, *(() if value is None else (value,)), each.offset)
            before = self._newest.get(self._id_of(record))
            if before is None or place > before[0]:
                self._newest[self._id_of(record)] = (place, each)

    def changed(self, lines: Sequence[bytes]) -> list[bytes]:
        """Return the lines that are not the last record of their id."""
        ids: list[bytes | None] = []
        fingerprints: dict[bytes, list[str]] = {}
        for line in lines:
            try:
                content = canonical_json.canonical(line)[0]
            except Refused:
                ids.append(None)
                continue
            if not isinstance(value := orjson.loads(content), dict):
                ids.append(None)
                continue
            id_ = self._id_of(value)
            ids.append(id_)
            fingerprints.setdefault(id_, []).append(hashlib.sha256(content).hexdigest())
        return [
            line
            for line, id_ in zip(lines, ids, strict=True)
            if id_ is None or fingerprints[id_] != self._known(id_)
        ]

    def gone(self, lines: Sequence[bytes]) -> list[dict[str, Any]]:
        """Return the last records of ids that are not among some lines, in the order of their offsets."""
        there = {self._id_of(orjson.loads(canonical_json.canonical(line)[0])) for line in lines}
        found = sorted(each.offset for id_, (_, each) in self._newest.items() if id_ not in there)
        records = {each.offset: orjson.loads(each.record) for _, each in self._newest.values()}
        return [records[offset] for offset in found if records[offset].get("sql.deleted") is not True]

    def _known(self, id_: bytes) -> list[str]:
        if id_ not in self._newest:
            return []
        record = self._newest[id_][1]
        return [] if orjson.loads(record.record).get("sql.deleted") is True else [record.fingerprint]

    def _id_of(self, record: Mapping[str, Any]) -> bytes:
        return orjson.dumps([record.get(name) for name in self._id_fields])
