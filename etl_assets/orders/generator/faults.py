"""Faults of events on their way: sent twice, sent with other content, broken, rejected by their contract.

Every fault is a line on top of the good events, so that good events stay countable. Belongs here: which
events get a fault, and the text of the faulty line. Does not belong here: its place in the files
(`generate.py`, `olist.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Any

from etl_assets.errors import SettingsError
from etl_assets.orders.event_contracts import EventType
from etl_assets.orders.generator.wire import WireEvent

#: Above any version a contract will have.
NEWER_VERSION = 1000

_ONE_DECIMAL = re.compile(r'("(?:amount|price)": ?\d+\.\d)(?=[,}])')


class Fault(StrEnum):
    """A fault of one event.

    The first four are lines of their own beside the event. `LATE` is about the event itself, which arrives on
    a later day than it happened.
    """

    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    MALFORMED = "malformed"
    INVALID_PAYLOAD = "invalid_payload"
    LATE = "late"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """Number of lines of each fault per good event; each from 0 to 1.

    An event has a duplicate or a conflict, never both, so that the counts do not depend on the order in which
    days are processed.

    Raises:
        SettingsError: A rate is out of its range, or `duplicates` and `conflicts` together are above 1.
    """

    duplicates: float = 0.0
    conflicts: float = 0.0
    malformed: float = 0.0
    invalid_payloads: float = 0.0
    late: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            rate = getattr(self, name)
            if not 0 <= rate <= 1:
                raise SettingsError(
                    f"the rate of {name} is {rate}",
                    fix="give a rate from 0 to 1: 0.02 is 2 in 100 events",
                    field=name,
                    value=rate,
                    allowed="0 to 1",
                )
            object.__setattr__(self, name, float(rate))
        if self.duplicates + self.conflicts > 1:
            raise SettingsError(
                f"the rates of duplicates ({self.duplicates}) and conflicts ({self.conflicts}) are above 1"
                " together",
                fix="lower one of them: an event is either duplicated or contradicted",
                field="conflicts",
                value=self.conflicts,
                allowed=f"0 to {1 - self.duplicates}",
            )


def plan_faults(rng: Random, events: int, rates: FaultRates) -> dict[int, list[Fault]]:
    """Choose which of `events` good events, counted from 0, get which faults.

    There are exactly `round(events * rate)` of each fault, except that conflicts never exceed the events
    without a duplicate.
    """
    duplicates, conflicts = round(events * rates.duplicates), round(events * rates.conflicts)
    conflicts = min(conflicts, events - duplicates)
    repeated = rng.sample(range(events), duplicates + conflicts)
    chosen = {
        Fault.DUPLICATE: repeated[:duplicates],
        Fault.CONFLICT: repeated[duplicates:],
        Fault.MALFORMED: rng.sample(range(events), round(events * rates.malformed)),
        Fault.INVALID_PAYLOAD: rng.sample(range(events), round(events * rates.invalid_payloads)),
        Fault.LATE: rng.sample(range(events), round(events * rates.late)),
    }
    plan: dict[int, list[Fault]] = {}
    for fault, indices in chosen.items():
        for index in indices:
            plan.setdefault(index, []).append(fault)
    return plan


class FaultyLines:
    """Generates faulty lines, and cycles through the kinds of each fault, so that a few lines show them all.

    Args:
        rng: The random generator of the varying parts.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._turns = dict.fromkeys(Fault, 0)

    def spell(self, fault: Fault, event: WireEvent) -> bytes:
        """Return the line of a fault beside a good event.

        Args:
            fault: Any fault but `LATE`.
            event: The good event. For malformed lines and invalid payloads its id must differ from all good
                events' ids.
        """
        kinds = _KINDS[fault]
        kind = kinds[self._turns[fault] % len(kinds)]
        self._turns[fault] += 1
        return kind(self._rng, event)


def _encode(record: object, *, ascii_only: bool = False, spaced: bool = False) -> bytes:
    separators = (", ", ": ") if spaced else (",", ":")
    return json.dumps(record, ensure_ascii=ascii_only, separators=separators).encode()


# The same event again: equal once numbers, order of keys, spaces and escapes no longer count.


def _same_bytes(_: Random, event: WireEvent) -> bytes:
    return _encode(event.as_record())


def _keys_reordered(rng: Random, event: WireEvent) -> bytes:
    return _encode(_shuffled(rng, event.as_record()))


def _shuffled(rng: Random, value: Any) -> Any:
    if isinstance(value, list):
        return [_shuffled(rng, element) for element in value]
    if not isinstance(value, Mapping):
        return value
    keys = list(value)
    rng.shuffle(keys)
    return {key: _shuffled(rng, value[key]) for key in keys}


def _other_trace(rng: Random, event: WireEvent) -> bytes:
    return _encode(
        replace(
            event, trace_id=f"{rng.getrandbits(128):032x}", span_id=f"{rng.getrandbits(64):016x}"
        ).as_record()
    )


def _spaced_and_escaped(_: Random, event: WireEvent) -> bytes:
    return _encode(event.as_record(), ascii_only=True, spaced=True)


def _numbers_respelled(rng: Random, event: WireEvent) -> bytes:
    line = _encode(_shuffled(rng, event.as_record())).decode()
    return _ONE_DECIMAL.sub(r"\g<1>0", line).encode()


# The same id with other content, good in itself.


def _other_amount(_: Random, event: WireEvent) -> bytes:
    amount = "0.07" if event.payload.get("amount") != "0.07" else "0.08"
    return _encode(event.as_record() | {"payload": {**event.payload, "amount": amount}})


def _other_content(_: Random, event: WireEvent) -> bytes:
    return _encode(
        event.as_record() | {"payload": {**event.payload, "note": "sent again with other content"}}
    )


# Lines that are not events: rejected at ingest.


def _not_json(rng: Random, event: WireEvent) -> bytes:
    return f"{event.event_type} {rng.getrandbits(32)} could not be serialized".encode()


def _truncated(rng: Random, event: WireEvent) -> bytes:
    line = _encode(event.as_record())
    return line[: 10 + int(rng.random() * (len(line) - 10))]


def _field_missing(rng: Random, event: WireEvent) -> bytes:
    record = event.as_record()
    required = ("event_id", "tenant_id", "aggregate_id", "event_type", "payload", "timestamp")
    del record[required[int(rng.random() * len(required))]]
    return _encode(record)


def _wrong_type(rng: Random, event: WireEvent) -> bytes:
    wrong: tuple[dict[str, object], ...] = (
        {"event_id": 17},
        {"tenant_id": {"id": event.tenant_id}},
        {"payload": "amount=1.00"},
        {"payload": [1, 2]},
        {"timestamp": True},
        {"schema_version": "one"},
    )
    return _encode(event.as_record() | wrong[int(rng.random() * len(wrong))])


def _not_a_number(_: Random, event: WireEvent) -> bytes:
    return _encode(event.as_record() | {"payload": {**event.payload, "amount": float("nan")}})


def _number_not_exact(rng: Random, event: WireEvent) -> bytes:
    line = _encode(event.as_record() | {"payload": {**event.payload, "amount": "AMOUNT"}})
    return line.replace(b'"AMOUNT"', rng.choice((b"1e3", b"1" * 40)))


def _time_without_zone(_: Random, event: WireEvent) -> bytes:
    return _encode(event.as_record() | {"timestamp": "2024-02-29T12:00:00"})


def _time_far_away(_: Random, event: WireEvent) -> bytes:
    return _encode(event.as_record() | {"timestamp": "9999-12-31T23:59:59Z"})


def _key_twice(_: Random, event: WireEvent) -> bytes:
    return b'{"tenant_id":"someone else",' + _encode(event.as_record())[1:]


def _invalid_utf8(_: Random, event: WireEvent) -> bytes:
    return _encode(event.as_record()).replace(b'"tenant_id":"', b'"tenant_id":"\xff\xfe', 1)


def _not_an_object(_: Random, event: WireEvent) -> bytes:
    return _encode([event.as_record()])


# Events whose payload breaks its contract: accepted at ingest, rejected at normalize.


def _payment(event: WireEvent, amount: object) -> WireEvent:
    payload = {"amount": amount, "currency": event.payload.get("currency", "EUR")}
    return replace(event, event_type=EventType.PAYMENT_PROCESSED, payload=payload)


def _amount_negative(_: Random, event: WireEvent) -> bytes:
    return _encode(_payment(event, "-5.00").as_record())


def _amount_three_decimals(rng: Random, event: WireEvent) -> bytes:
    return _encode(_payment(event, rng.choice(("1.005", 1.005))).as_record())


def _amount_not_a_number(_: Random, event: WireEvent) -> bytes:
    return _encode(_payment(event, "a lot").as_record())


def _amount_missing(_: Random, event: WireEvent) -> bytes:
    return _encode(replace(_payment(event, None), payload={"currency": "EUR"}).as_record())


def _type_unknown(_: Random, event: WireEvent) -> bytes:
    return _encode(replace(_payment(event, "1.00"), event_type="OrderTeleported").as_record())


def _version_newer(_: Random, event: WireEvent) -> bytes:
    return _encode(replace(_payment(event, "1.00"), schema_version=NEWER_VERSION).as_record())


_KINDS: Mapping[Fault, tuple[Callable[[Random, WireEvent], bytes], ...]] = {
    Fault.DUPLICATE: (_same_bytes, _keys_reordered, _other_trace, _numbers_respelled, _spaced_and_escaped),
    Fault.CONFLICT: (_other_amount, _other_content),
    Fault.MALFORMED: (
        _not_json,
        _truncated,
        _field_missing,
        _wrong_type,
        _not_a_number,
        _number_not_exact,
        _time_without_zone,
        _time_far_away,
        _key_twice,
        _invalid_utf8,
        _not_an_object,
    ),
    Fault.INVALID_PAYLOAD: (
        _amount_negative,
        _amount_three_decimals,
        _amount_not_a_number,
        _amount_missing,
        _type_unknown,
        _version_newer,
    ),
}
