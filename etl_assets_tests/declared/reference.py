"""What declared pipelines must make of the records that they were given, in plain Python.

Which of several records with one id is accepted may depend on which file a killed run read first. So the
model says which ones may be, and all that follows from the accepted ones. Belongs here: the rules, as
docs/pipelines.md has them. Does not belong here: reading tables (`comparison.py`).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from etl_assets_tests.declared.files import DataFile, Record

REPLAYS = "dead_letters"
DELETES = {
    "write_mode": "apply_changes",
    "apply_as_deletes": "note = 'plain'",
    "except_column_list": ["note"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A record that a source meets.

    Attributes:
        source: The files, or dead letters handed in again.
        position: `<day>/<file>:<line>`.
        content: Canonical JSON; None if it is no record.
        reason: Why the source rejects it.
        record_id: What identifies it.
        epoch: Between which moments at which everything was read it came.
    """

    source: str
    position: str
    content: str | None
    reason: str | None
    record_id: str | None
    epoch: int

    @property
    def fingerprint(self) -> str:
        return "" if self.content is None else hashlib.sha256(self.content.encode()).hexdigest()


@dataclass(slots=True)
class Letter:
    """What an operator did with a dead letter: the records handed in, in their order, or that it was given
    up.
    """

    handed_in: list[Arrival] = field(default_factory=list)
    discarded_at: int | None = None


BRANCHES = [
    {"name": "many", "type": "filter", "where": "stock >= 50"},
    {"name": "few", "inputs": ["records"], "type": "filter", "where": "stock < 50 or stock is null"},
    {"name": "marked", "type": "map", "columns": {"stock": {"expression": "stock + 1000", "type": "bigint"}}},
    {"inputs": ["many", "marked"], "type": "filter", "where": "true"},
]
"""Transforms of a pipeline whose rows go two ways and come together."""


@dataclass(slots=True)
class Pipe:
    """A declared pipeline and all that it was given.

    Attributes:
        name: The pipeline's and its table's name.
        has_id: Whether `number` is the records' id, and the table has keys; else every record is a row.
        deletes: Whether records whose note is `plain` delete the row of their key.
    """

    name: str
    has_id: bool
    format: str
    deletes: bool = False
    arrivals: list[Arrival] = field(default_factory=list)
    letters: dict[str, Letter] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return f"{self.name}_source"

    def declaration(self) -> dict[str, Any]:
        """The content of its file."""
        rules = [{"name": "is_cheap", "condition": "price < 1000", "on_violation": "drop"}]
        return {
            "name": self.name,
            "source": {
                "type": "files",
                "path": f"incoming/{self.name}/{'{day}/' if self.has_id else ''}*",
                "format": self.format,
                "settle_seconds": 0,
                **({"id": ["number"]} if self.has_id else {}),
            },
            "columns": {
                "name": {"type": "string", "from": "part", "required": True},
                "stock": {"type": "bigint", "at_least": 0},
                "price": "decimal(18,2)",
                "updated_at": "timestamp",
                **({"note": "string"} if self.deletes else {}),
            },
            "transforms": [{"type": "expectations", "rules": rules}] if self.has_id else BRANCHES,
            "table": {"keys": ["name"], "sequence_by": "updated_at", **(DELETES if self.deletes else {})}
            if self.has_id
            else {"write_mode": "append"},
        }

    def land(self, file: DataFile, day: dt.date, epoch: int) -> None:
        """A file came, or was changed after it had been read."""
        place = f"files/{day}/{file.name}" if self.has_id else f"files/{file.name}"
        for each in file.records:
            position = f"{day}/{file.name}:{each.line}"
            self._arrive(self._judged("files", position, each.record, f"{place}|{each.place}", "", epoch))

    def hand_in(
        self, letter_id: str, day: dt.date, attempt: int, record: Record | bytes, epoch: int
    ) -> Arrival:
        """A dead letter was handed in again."""
        name = f"{letter_id}.{attempt}.jsonl"
        again = f"@{letter_id[:16]}.{attempt}"
        arrival = self._judged(REPLAYS, f"{day}/{name}:1", record, f"{REPLAYS}/{day}/{name}|0", again, epoch)
        self._arrive(arrival)
        self.letters.setdefault(letter_id, Letter()).handed_in.append(arrival)
        return arrival

    def by_id(self) -> dict[str, list[Arrival]]:
        found: dict[str, list[Arrival]] = defaultdict(list)
        for each in self.arrivals:
            if each.record_id is not None:
                found[each.record_id].append(each)
        return found

    def row(self, content: str) -> tuple[dict[str, Any] | None, str | None]:
        """The row of an accepted record, or the reason why it is none."""
        values: dict[str, str] = json.loads(content)
        part, stock, price, at = (values.get(name) for name in ("part", "stock", "price", "updated_at"))
        if part is None:
            return None, "MissingField"
        is_deleted = self.deletes and values.get("note") == "plain"
        if stock == "many" and not is_deleted:
            return None, "WrongType"
        if stock == "-1" and not is_deleted:
            return None, "ContractViolation"
        if (price == "1.234" and not is_deleted) or at == "yesterday":
            return None, "WrongType"
        if is_deleted:
            stock = price = None
        elif self.has_id and not (price is not None and Decimal(price) < 1000):
            return None, "ExpectationFailed"
        if self.deletes and at is None:
            return None, "MissingField"
        return {
            **({"is_deleted": is_deleted} if self.deletes else {}),
            "name": part,
            "stock": None if stock is None else self._counted(int(stock)),
            "price": None if price is None else Decimal(price).quantize(Decimal("0.01")),
            "updated_at": None if at is None else dt.datetime.fromisoformat(at),
        }, None

    def _counted(self, stock: int) -> int:
        """The stock of a row: without an id, `few` below 50 are marked by 1000 more."""
        return stock if self.has_id or stock >= 50 else stock + 1000

    def table(self, accepted: Iterable[tuple[int, str]]) -> list[dict[str, Any]]:
        """The rows of the table, of accepted records with their offsets."""
        rows = self._rows(accepted)
        if not self.has_id:
            return rows
        return [row for row in _newest(rows) if not row.get("is_deleted")]

    def tombstones(self, accepted: Iterable[tuple[int, str]]) -> list[dict[str, Any]]:
        """The newest delete of each key."""
        return _newest(row for row in self._rows(accepted) if row.get("is_deleted"))

    def _rows(self, accepted: Iterable[tuple[int, str]]) -> list[dict[str, Any]]:
        judged = ((offset, self.row(content)[0]) for offset, content in accepted)
        return [{**row, "_offset": offset} for offset, row in judged if row is not None]

    def _arrive(self, arrival: Arrival) -> None:
        known = {(each.source, each.position, each.content) for each in self.arrivals}
        if (arrival.source, arrival.position, arrival.content) not in known:
            self.arrivals.append(arrival)

    def _judged(
        self, source: str, position: str, record: Record | bytes, place: str, again: str, epoch: int
    ) -> Arrival:
        content = reason = record_id = None
        if isinstance(record, bytes):
            content = f"rejected {record!r}"
            reason = "MalformedCsv" if self.format == "csv" and source != REPLAYS else "MalformedJson"
        else:
            content = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            if self.has_id and not record.get("number"):
                reason = "MissingField"
            elif self.has_id:
                record_id = f"{record['number']}{again}"
            else:
                fingerprint = hashlib.sha256(content.encode()).hexdigest()
                record_id = hashlib.sha256(f"{place}|{fingerprint}".encode()).hexdigest()
        return Arrival(
            source=source, position=position, content=content, reason=reason, record_id=record_id, epoch=epoch
        )


def _newest(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    newest: dict[str, dict[str, Any]] = {}
    for row in rows:
        newest[str(row["name"])] = max(newest.get(str(row["name"]), row), row, key=_newer)
    return list(newest.values())


def _newer(row: dict[str, Any]) -> tuple[Any, ...]:
    at = row["updated_at"]
    return (at is not None, at or dt.datetime.min.replace(tzinfo=dt.UTC), row["_offset"])
