"""The tables of an installation beside the reference: every deviation, in words.

Belongs here: reading tables by delta-rs and comparing them row by row. Does not belong here: what must be in
them (`reference.py`, `judge.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from etl_assets_tests.campaign.judge import (
    STATUS,
    Event,
    Order,
    Refusal,
    canonical,
    judge_payload,
    kept_record,
    parse,
)
from etl_assets_tests.campaign.lines import CUSTOMERS
from etl_assets_tests.campaign.reference import LANDING, REPLAYS, Arrival, Reference
from etl_assets_tests.commands.home import Home

Row = dict[str, Any]
_RANKS = list(STATUS.values())
_SHARED = (
    "event_id", "tenant_id", "order_id", "event_type", "order_status", "amount", "currency", "customer_id",
    "customer_region", "occurred_at", "event_date", "schema_version", "trace_id", "span_id", "partition_date",
)  # fmt: skip
_SHOWN = 300


@dataclass(slots=True)
class Comparison:
    """Compares one installation with its reference. `deviations` says what is not as it must be."""

    home: Home
    reference: Reference
    deviations: list[str] = field(default_factory=list)
    raw: dict[str, Row] = field(default_factory=dict)
    accepted: dict[str, Arrival] = field(default_factory=dict)
    normalized: dict[str, Row] = field(default_factory=dict)
    audit: dict[tuple[str, str, str], list[Row]] = field(default_factory=dict)

    def run(self) -> list[str]:
        """Compare all tables."""
        self.audit = _grouped(self.home.rows("audit_log"), "stage", "source", "source_position")
        self._raw_events()
        self._exceptions()
        self._normalized_orders()
        self._warehouse_rows()
        self._order_status_view()
        self._dead_letters()
        self._audit_log()
        return self.deviations

    def _is(self, what: str, found: Any, *allowed: Any) -> None:
        if found not in allowed:
            wanted = " or ".join(f"{each!r:.{_SHOWN}}" for each in allowed)
            self.deviations.append(f"{what} is {found!r:.{_SHOWN}}, must be {wanted}")

    def _unique(self, table: str, rows: Iterable[Row], name: str) -> dict[Any, Row]:
        found: dict[Any, Row] = {}
        for row in rows:
            if row[name] in found:
                self.deviations.append(f"{table} has {name} {row[name]!r} twice")
            found[row[name]] = row
        return found

    def _same_keys(self, what: str, found: Iterable[Any], wanted: Iterable[Any]) -> None:
        found, wanted = set(found), set(wanted)
        for each in sorted(map(repr, wanted - found))[:5]:
            self.deviations.append(f"{what}: {each:.{_SHOWN}} is missing")
        for each in sorted(map(repr, found - wanted))[:5]:
            self.deviations.append(f"{what}: {each:.{_SHOWN}} is too many")

    # raw_events and its exceptions

    def _raw_events(self) -> None:
        rows = self.home.rows("raw_events")
        self.raw = self._unique("raw_events", rows, "event_id")
        self._is("offsets of raw_events", sorted(row["offset"] for row in rows), list(range(len(rows))))
        groups = self.reference.by_event()
        self._same_keys("raw_events", self.raw, groups)
        for event_id in self.raw.keys() & groups.keys():
            row, group = self.raw[event_id], groups[event_id]
            at = (row["source"], row["source_position"])
            candidates = self.reference.first(group)
            found = [each for each in candidates if (each.source, each.position) == at]
            if not found:
                places = [each.position for each in candidates]
                self.deviations.append(
                    f"event {event_id!r} was accepted from {at}, must be from one of {places}"
                )
                found = [each for each in group if (each.source, each.position) == at] or candidates
            self.accepted[event_id] = found[0]
            self._raw_row(row, found[0])
        self._order_of_acceptance()

    def _raw_row(self, row: Row, arrival: Arrival) -> None:
        event, where = arrival.judged, f"raw_events at {arrival.position}:"
        assert isinstance(event, Event)
        for name in ("tenant_id", "aggregate_id", "event_type", "schema_version", "occurred_at", "trace_id"):
            self._is(f"{where} {name}", row[name], getattr(event, name))
        self._is(f"{where} span_id", row["span_id"], event.span_id)
        self._is(f"{where} fingerprint", row["fingerprint"], event.fingerprint)
        self._is(f"{where} payload", row["payload"], canonical(event.payload))
        self._is(f"{where} partition_date", row["partition_date"], arrival.day)

    def _order_of_acceptance(self) -> None:
        """Offsets go up from epoch to epoch, and within one whose order is known by source order."""
        in_order = sorted(self.accepted, key=lambda event_id: self.raw[event_id]["offset"])
        before: Any = ()
        for event_id in in_order:
            arrival = self.accepted[event_id]
            known = arrival.epoch not in self.reference.unordered
            place: Any = (arrival.epoch, *(arrival.order if known else ()))
            if before[: len(place)] > place:
                self.deviations.append(f"{arrival.position} was accepted after what comes later: {before}")
            before = place

    def _exceptions(self) -> None:
        rows = self.home.rows("raw_events_exceptions")
        self._unique("raw_events_exceptions", rows, "exception_id")
        found = _grouped(rows, "source", "source_position")
        self._same_keys(
            "raw_events_exceptions",
            found,
            (
                at
                for at, versions in self.reference.arrivals.items()
                if any(map(self._is_exception, versions))
            ),
        )
        for at, versions in self.reference.arrivals.items():
            wanted = [each for each in versions if self._is_exception(each)]
            rows = found.get(at, [])
            if len(versions) == 1 and len(rows) > 1:
                self.deviations.append(f"{at} has {len(rows)} exceptions: {[row['outcome'] for row in rows]}")
            for arrival in wanted:
                problems = [self._against(row, arrival) for row in rows]
                if problems and all(problems):
                    self.deviations.append(f"exception at {at[1]}: {min(problems, key=len)}")

    def _is_exception(self, arrival: Arrival) -> bool:
        if isinstance(arrival.judged, Refusal):
            return True
        accepted = self.accepted.get(arrival.judged.event_id)
        return accepted is not None and accepted is not arrival

    def _outcome(self, arrival: Arrival) -> tuple[str, int | None]:
        """What ingest must say of a line: the outcome, and the offset that goes with it."""
        judged = arrival.judged
        if isinstance(judged, Refusal):
            return "rejected", None
        offset = self.raw.get(judged.event_id, {}).get("offset")
        accepted = self.accepted.get(judged.event_id)
        if accepted is arrival:
            return ("replayed" if arrival.source == REPLAYS else "accepted"), offset
        same = accepted is not None and isinstance(accepted.judged, Event)
        same = same and accepted.judged.fingerprint == judged.fingerprint
        return ("duplicate" if same else "conflict"), offset

    def _against(self, row: Row, arrival: Arrival) -> str:
        """What is wrong with an exception of a line."""
        outcome, offset = self._outcome(arrival)
        problems = []
        if row["outcome"] != outcome:
            problems.append(f"{row['outcome']} and not {outcome}")
        if row["original_offset"] != offset:
            problems.append(f"original_offset {row['original_offset']} and not {offset}")
        if outcome != "duplicate":
            reasons = (
                arrival.judged.reasons if isinstance(arrival.judged, Refusal) else {"FingerprintConflict"}
            )
            if row["reason"] not in reasons:
                problems.append(f"{row['reason']} and not {set(reasons)}: {row['error']}")
            if (row["record"], row["record_encoding"]) != kept_record(arrival.line):
                problems.append(f"record {row['record']!r:.{_SHOWN}} and not {arrival.line!r:.{_SHOWN}}")
        return "; ".join(problems)

    # What is made of raw_events

    def _order_of(self, event_id: str) -> Order | Refusal:
        event = self.accepted[event_id].judged
        assert isinstance(event, Event)
        payload = self.reference.payloads.get(event_id) or event.payload
        return judge_payload(event.event_type, event.schema_version, payload)

    def _normalized_orders(self) -> None:
        rows = self.home.rows("normalized_orders")
        self.normalized = self._unique("normalized_orders", rows, "event_id")
        self._unique("normalized_orders", rows, "offset")
        if not self.reference.undone:
            self._is(
                "offsets of normalized_orders", sorted(row["offset"] for row in rows), list(range(len(rows)))
            )
        orders = {event_id: self._order_of(event_id) for event_id in self.accepted}
        self._same_keys(
            "normalized_orders",
            self.normalized,
            (name for name, order in orders.items() if isinstance(order, Order)),
        )
        for event_id, order in orders.items():
            if isinstance(order, Order) and event_id in self.normalized:
                self._normalized_row(self.normalized[event_id], self.accepted[event_id], order)
        self._refused_orders({name: order for name, order in orders.items() if isinstance(order, Refusal)})

    def _normalized_row(self, row: Row, arrival: Arrival, order: Order) -> None:
        event = arrival.judged
        assert isinstance(event, Event)
        wanted = {
            "raw_offset": self.raw[event.event_id]["offset"],
            "tenant_id": event.tenant_id,
            "order_id": event.aggregate_id,
            "event_type": event.event_type,
            "order_status": STATUS[event.event_type],
            "amount": order.amount,
            "currency": order.currency,
            "customer_id": order.customer_id,
            "customer_region": CUSTOMERS.get(order.customer_id or ""),
            "occurred_at": event.occurred_at,
            "event_date": event.occurred_at.date(),
            "schema_version": event.schema_version,
            "trace_id": event.trace_id,
            "span_id": event.span_id,
            "partition_date": arrival.day,
        }
        for name, value in wanted.items():
            self._is(f"normalized_orders from {arrival.position}: {name}", row[name], value)

    def _refused_orders(self, refused: dict[str, Refusal]) -> None:
        found = _grouped(self.home.rows("normalized_orders_exceptions"), "event_id")
        handed_in = self.reference.payloads.keys()
        self._same_keys(
            "normalized_orders_exceptions",
            (key[0] for key in found if key[0] not in handed_in),
            refused.keys() - handed_in,
        )
        for event_id, refusal in refused.items():
            for row in found.get((event_id,), ()):
                where = f"refused order at {row['source_position']}:"
                self._is(f"{where} original_offset", row["original_offset"], self.raw[event_id]["offset"])
                if event_id not in handed_in:
                    self._is(f"{where} number", len(found[event_id,]), 1)
                    self._is(f"{where} position", row["source_position"], self.accepted[event_id].position)
                    self._is(f"{where} reason", row["reason"], *refusal.reasons)
                    event = self.accepted[event_id].judged
                    assert isinstance(event, Event)
                    self._is(
                        f"{where} record", canonical(parse(row["record"].encode())), canonical(event.payload)
                    )

    def _warehouse_rows(self) -> None:
        rows = self._unique("warehouse_rows", self.home.rows("warehouse_rows"), "event_id")
        self._same_keys("warehouse_rows", rows, self.normalized)
        for event_id in rows.keys() & self.normalized.keys():
            row, order = rows[event_id], self.normalized[event_id]
            for name in _SHARED:
                self._is(f"warehouse row of {event_id!r}: {name}", row[name], order[name])
            self._is(f"warehouse row of {event_id!r}: offset", row["normalized_offset"], order["offset"])
            key = f"warehouse://orders/{row['tenant_id']}/{event_id}"
            self._is(f"warehouse row of {event_id!r}: key", row["warehouse_key"], key)

    def _order_status_view(self) -> None:
        found = _grouped(self.home.rows("order_status_view"), "tenant_id", "order_id")
        orders = _grouped(self.normalized.values(), "tenant_id", "order_id")
        self._same_keys("order_status_view", found, orders)
        for key in found.keys() & orders.keys():
            self._is(f"order_status_view {key}: rows", len(found[key]), 1)
            self._view_row(found[key][0], orders[key])

    def _view_row(self, row: Row, events: list[Row]) -> None:
        where = f"order_status_view {row['tenant_id']}/{row['order_id']}:"
        highest = max(events, key=lambda event: _RANKS.index(event["order_status"]))["order_status"]
        self._is(f"{where} order_status", row["order_status"], highest)
        last = max(events, key=lambda event: event["offset"])
        self._is(f"{where} last_offset", row["last_offset"], last["offset"])
        self._is(f"{where} last_event_id", row["last_event_id"], last["event_id"])
        for name, kind in (("order", "created"), ("paid", "paid")):
            amounts = {each["event_id"]: each["amount"] for each in events if each["order_status"] == kind}
            self._is(f"{where} {name}_amounts", dict(row[f"{name}_amounts"]), amounts)
            total = sum(amounts.values(), Decimal("0.00"))
            self._is(f"{where} {name}_total", row[f"{name}_total"], total)
        for status in _RANKS:
            times = [each["occurred_at"] for each in events if each["order_status"] == status]
            self._is(f"{where} {status}_at", row[f"{status}_at"], min(times, default=None))
        for name in ("currency", "customer_id"):
            named = {each[name] for each in events if each[name] is not None} or {None}
            self._is(f"{where} {name}", row[name], *named)

    # Dead letters and the audit log

    def _dead_letters(self) -> None:
        letters = self._unique("dead_letters", self.home.rows("dead_letters"), "dead_letter_id")
        exceptions: dict[str, Row] = {}
        for table in ("raw_events_exceptions", "normalized_orders_exceptions"):
            for row in self.home.rows(table):
                if row["outcome"] != "duplicate" and row["source"] == LANDING:
                    exceptions[row["exception_id"]] = row
        known = self.reference.letters
        # An undo makes the exceptions of normalize again, by then under the position they were handed in
        # from.
        self._same_keys("dead_letters", letters.keys() - known.keys(), exceptions.keys() - known.keys())
        self._same_keys("dead_letters dealt with", letters.keys() & known.keys(), known)
        for letter_id in letters.keys() & known.keys():
            row, wanted = letters[letter_id], known[letter_id]
            self._is(f"dead letter {letter_id[:8]}: state", row["state"], wanted.state)
            if wanted.attempts is not None:
                self._is(f"dead letter {letter_id[:8]}: attempts", row["attempts"], wanted.attempts)
            if wanted.reasons is not None:
                self._is(f"dead letter {letter_id[:8]}: reason", row["reason"], *wanted.reasons)
        for letter_id in letters.keys() & exceptions.keys() - known.keys():
            row, exception = letters[letter_id], exceptions[letter_id]
            for name in (
                "stage",
                "reason",
                "record",
                "record_encoding",
                "source_position",
                "event_id",
                "trace_id",
            ):
                self._is(f"dead letter {letter_id[:8]}: {name}", row[name], exception[name])
            self._is(
                f"dead letter {letter_id[:8]}: state, attempts", (row["state"], row["attempts"]), ("open", 1)
            )

    def _audit_log(self) -> None:
        for key, rows in self.audit.items():
            attempts = [row["attempt"] for row in rows]
            if len(set(attempts)) < len(attempts):
                self.deviations.append(f"audit_log has {key} twice at one attempt")
        self._audit_of_ingest()
        refused = {event_id for event_id in self.accepted if event_id not in self.normalized}
        wanted = {str(self.raw[event_id]["offset"]): event_id for event_id in self.accepted}
        self._same_keys("audit_log of normalize", self._positions("normalize", "raw_events"), wanted)
        for offset in wanted.keys() & set(self._positions("normalize", "raw_events")):
            event_id, rows = wanted[offset], self.audit["normalize", "raw_events", offset]
            last = max(rows, key=lambda row: row["attempt"])
            self._is(
                f"audit_log of normalize at {offset}",
                (last["outcome"], last["offset"], last["event_id"]),
                ("rejected", None, event_id)
                if event_id in refused
                else ("normalized", self.normalized[event_id]["offset"], event_id),
            )
            if event_id not in self.reference.payloads:
                self._is(f"audit_log of normalize at {offset}: rows", len(rows), 1)
        self._same_keys(
            "audit_log of the warehouse",
            self._positions("commit", "normalized_orders"),
            (str(row["offset"]) for row in self.normalized.values()),
        )

    def _audit_of_ingest(self) -> None:
        for source in (LANDING, REPLAYS):
            found = self._positions("ingest", source)
            wanted = [
                position
                for of, position in self.reference.arrivals
                if of == source and self.reference.arrivals[of, position]
            ]
            self._same_keys(f"audit_log of {source}", found, wanted)
        for (source, position), versions in self.reference.arrivals.items():
            rows = self.audit.get(("ingest", source, position), [])
            if rows and len(versions) == 1:
                outcomes = [(row["outcome"], row["offset"], row["attempt"]) for row in rows]
                self._is(
                    f"audit_log at {position}", outcomes, [(*self._outcome(versions[0]), versions[0].attempt)]
                )

    def _positions(self, stage: str, source: str) -> Iterator[str]:
        return (position for of, by, position in self.audit if (of, by) == (stage, source))


def _grouped(rows: Iterable[Row], *names: str) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    return found
