"""The tables of a declared pipeline beside the reference: every deviation, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from etl_assets_tests.declared.reference import REPLAYS, Arrival, Pipe

_SHOWN = 400


class ReadTables(Protocol):
    """An installation whose tables can be read, such as `Home`."""

    def rows(self, table: str, columns: Sequence[str] | None = None, root: str = ...) -> list[dict[str, Any]]:
        """All rows of a table; none if it is not there yet."""
        ...


@dataclass(slots=True)
class Comparison:
    """Compares the tables of one pipeline with its reference."""

    home: ReadTables
    pipe: Pipe
    root: str = "data"
    deviations: list[str] = field(default_factory=list)
    accepted: dict[str, Arrival] = field(default_factory=dict)

    def run(self) -> list[str]:
        """Compare all tables of the pipeline, and its dead letters."""
        self._dead_letters(self._tables())
        return self.deviations

    def tables(self) -> list[str]:
        """Compare all tables of the pipeline."""
        self._tables()
        return self.deviations

    def _tables(self) -> list[dict[str, Any]]:
        """Compare them; return the rejected records that are dead letters."""
        rows = sorted(self.home.rows(self.pipe.source, root=self.root), key=lambda row: row["offset"])
        self._source(rows)
        rejected = self._source_rejects()
        records = [(row["offset"], row["record"]) for row in rows]
        self._table(records)
        refused = self._rejects(rows)
        return [*rejected, *refused]

    def _same(self, what: str, found: Any, wanted: Any) -> None:
        """Compare two collections of values, whatever their order."""
        found, wanted = Counter(map(repr, found)), Counter(map(repr, wanted))
        for each in sorted((wanted - found).elements())[:5]:
            self.deviations.append(f"{self.pipe.name}: {what}: {each:.{_SHOWN}} is missing")
        for each in sorted((found - wanted).elements())[:5]:
            self.deviations.append(f"{self.pipe.name}: {what}: {each:.{_SHOWN}} is too many")

    def _source(self, rows: list[dict[str, Any]]) -> None:
        """Each id is accepted once, from one of its first arrivals; offsets are dense."""
        groups = self.pipe.by_id()
        self._same("offsets", [row["offset"] for row in rows], range(len(rows)))
        self._same("ids of accepted records", [row["record_id"] for row in rows], groups)
        for row in rows:
            group = groups.get(row["record_id"], [])
            epoch = min((each.epoch for each in group), default=0)
            found = [
                each
                for each in group
                if (each.source, each.position, each.content)
                == (row["source"], row["source_position"], row["record"])
                and each.fingerprint == row["fingerprint"]
                and each.epoch == epoch
            ]
            if len(found) == 1:
                self.accepted[row["record_id"]] = found[0]
            else:
                self.deviations.append(f"{self.pipe.name}: {row!r:.{_SHOWN}} is none of {group!r:.{_SHOWN}}")

    def _source_rejects(self) -> list[dict[str, Any]]:
        wanted = []
        for each in self.pipe.arrivals:
            stands = None if each.record_id is None else self.accepted.get(each.record_id)
            if each.reason is not None:
                wanted.append((each.source, each.position, "rejected", each.reason))
            elif stands is None or stands is each:
                continue
            elif stands.fingerprint == each.fingerprint:
                wanted.append((each.source, each.position, "duplicate", None))
            else:
                wanted.append((each.source, each.position, "conflict", "FingerprintConflict"))
        rows = self.home.rows(f"{self.pipe.source}_rejects", root=self.root)
        found = [(row["source"], row["source_position"], row["outcome"], row["reason"]) for row in rows]
        self._same("what the source rejected", found, wanted)
        self._once("what the source rejected", rows)
        return [row for row in rows if row["outcome"] != "duplicate"]

    def _table(self, records: list[tuple[int, str]]) -> None:
        rows = self.home.rows(self.pipe.name, root=self.root)
        names = ("name", "stock", "price", "updated_at", "_offset")
        found = [tuple(row[name] for name in names) for row in rows]
        wanted = [tuple(row[name] for name in names) for row in self.pipe.table(records)]
        self._same("rows", [_comparable(row) for row in found], [_comparable(row) for row in wanted])
        if self.pipe.deletes:
            names = ("name", "updated_at", "_offset")
            kept = self.home.rows(f"{self.pipe.name}_tombstones", root=self.root)
            found = [tuple(row[name] for name in names) for row in kept]
            wanted = [tuple(row[name] for name in names) for row in self.pipe.tombstones(records)]
            self._same(
                "tombstones", [_comparable(row) for row in found], [_comparable(row) for row in wanted]
            )

    def _rejects(self, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows = self.home.rows(f"{self.pipe.name}_rejects", root=self.root)
        wanted = [
            (row["offset"], reason, row["source_position"], row["record"])
            for row in records
            for reason in [self.pipe.row(row["record"])[1]]
            if reason is not None
        ]
        found = [
            (row["original_offset"], row["reason"], row["source_position"], row["record"]) for row in rows
        ]
        self._same("rejected rows", found, wanted)
        self._once("rejected rows", rows)
        return rows

    def _once(self, what: str, rows: list[dict[str, Any]]) -> None:
        twice = [each for each, number in Counter(row["exception_id"] for row in rows).items() if number > 1]
        self.deviations += [
            f"{self.pipe.name}: {what}: the exception {each} is there twice" for each in twice
        ]

    def _dead_letters(self, exceptions: list[dict[str, Any]]) -> None:
        first = {row["exception_id"]: row for row in exceptions if row["source"] != REPLAYS}
        wanted = []
        for letter_id, row in first.items():
            dealt = self.pipe.letters.get(letter_id)
            attempts, reason = 1, row["reason"]
            state = "open"
            if dealt is not None and dealt.handed_in:
                last = dealt.handed_in[-1]
                attempts = 1 + len(dealt.handed_in)
                now = last.reason or self.pipe.row(last.content or "{}")[1]
                state, reason = ("open", now) if now else ("replayed", None)
            if dealt is not None and dealt.discarded_at == attempts:
                state = "discarded"
            wanted.append((letter_id, state, attempts, reason if state == "open" else None))
        stages = {self.pipe.source, self.pipe.name}
        rows = [row for row in self.home.rows("dead_letters", root=self.root) if row["stage"] in stages]
        found = [
            (
                row["dead_letter_id"],
                row["state"],
                row["attempts"],
                row["reason"] if row["state"] == "open" else None,
            )
            for row in rows
        ]
        self._same("dead letters", found, wanted)


def _comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(str(value) if value is not None else None for value in row)
