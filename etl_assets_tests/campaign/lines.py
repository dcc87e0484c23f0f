"""Lines that a producer may write: good ones, repeated ones in other spellings, and everything that is to be
refused.

Belongs here: one line at a time, from dice. Does not belong here: files and their names (`files.py`), and
what is to become of a line (`judge.py`), which does not know how it was made.
"""

from __future__ import annotations

import copy
import datetime as dt
import json
import random
from decimal import Decimal
from typing import Any

from etl_assets_tests.campaign.judge import EARLIEST, MAX_RECORD_BYTES, STATUS

CUSTOMERS = {"customer-1": "north", "customer-2": "south", "customer-3": None, "Kunde-ä": "Süd, West"}
_LOOK_ALIKES = (
    "{}",
    "{} ",
    " {}",
    "{}\u0000",
    "\u202e{}",
    "{}\u200b",
    "{}e\u0301",
    "{}\u00e9",
    "{}/x",
    "{}'\"\\",
    "{}\U0001f600",
)
_SEPARATORS = ("\u2028", "\u2029", "\u0085", "\n", "\r\n", "\r", "\u000b", "\u00a0", " ")


class Lines:
    """Writes lines. Remembers the events it has written, to write them again."""

    def __init__(self, dice: random.Random, home: str) -> None:
        self._dice = dice
        self._home = home
        self._number = 0
        self._written: list[tuple[dict[str, Any], dt.date]] = []

    def some(self, day: dt.date, number: int) -> list[bytes]:
        """Lines of a day, of every kind."""
        kinds = self._dice.choices(list(_KINDS), [_KINDS[kind] for kind in _KINDS], k=number)
        return [line for kind in kinds for line in getattr(self, f"_{kind}")(day)]

    def good(self, day: dt.date) -> bytes:
        """An event that every stage takes."""
        return _written(self._remembered(self._event(day), day))

    def corrected_event(self, day: dt.date) -> bytes:
        """What an operator hands in for a record that ingest has refused: mostly an event, now and then no
        event again.
        """
        dice = self._dice
        if dice.random() < 0.2:
            return b'{"event_id":"still no event"}'
        if dice.random() < 0.2 and self._written:
            return self._duplicate(day)[0]
        return self.good(day)

    def corrected_payload(self) -> bytes:
        """What an operator hands in for a payload that normalize has refused."""
        amount = self._dice.choice(["7.25", "0.00", "-1", 12, Decimal("3.5")])
        return _written(
            {"customer_id": "customer-2", "amount": amount, "currency": "EUR", "note": "corrected"}
        )

    # Events

    def _event(self, day: dt.date) -> dict[str, Any]:
        dice = self._dice
        self._number += 1
        event_type = dice.choice(list(STATUS))
        payload: dict[str, Any] = {"note": dice.choice(["", "ü", "\U0001f4a9", '"quoted"', "a\tb"])}
        if event_type in ("OrderCreated", "PaymentProcessed"):
            payload["amount"] = dice.choice(_GOOD_AMOUNTS)
            if dice.random() < 0.8:
                payload["currency"] = "EUR"
        if event_type == "OrderCreated":
            payload["customer_id"] = dice.choice([*CUSTOMERS, "nobody knows"])
        if dice.random() < 0.1:
            payload["deep"] = _nested(dice.choice([3, 40, 90]))
        moment = dt.datetime.combine(day, dt.time(), dt.UTC) + dt.timedelta(
            seconds=dice.randrange(-3 * 86_400, 2 * 86_400), milliseconds=dice.randrange(1_000)
        )
        event = {
            "event_id": f"{self._home}-{self._number:05d}",
            "tenant_id": dice.choice(["acme", "büro", "t 2"]),
            "aggregate_id": f"order-{dice.randrange(12)}",
            "event_type": event_type,
            "payload": payload,
            "timestamp": self._time(moment),
            "schema_version": 1,
        }
        if dice.random() < 0.5:
            event["trace_id"] = f"trace-{dice.randrange(1000)}"
            event["span_id"] = dice.choice([None, "span"])
        if dice.random() < 0.2:
            event["extra"] = dice.choice([None, [], {"a": [1, Decimal("2.50"), {}]}, "x"])
        return event

    def _time(self, moment: dt.datetime) -> int | str:
        since = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        away = dt.timedelta(minutes=self._dice.choice([0, 330, -210, 1439]))
        local = moment.astimezone(dt.timezone(away)).isoformat(timespec="milliseconds")
        return self._dice.choice(
            [
                since // dt.timedelta(milliseconds=1),
                local,
                moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
                moment.isoformat(timespec="seconds").replace("+00:00", "z").replace("T", "t"),
            ]
        )

    def _remembered(self, event: dict[str, Any], day: dt.date) -> dict[str, Any]:
        self._written.append((event, day))
        return event

    def _any_written(self, day: dt.date) -> dict[str, Any]:
        """An event of before; one whose time is possible on this day, or it would not be the same event."""
        possible = [event for event, of in self._written[-300:] if of <= day]
        return copy.deepcopy(
            self._dice.choice(possible) if possible else self._remembered(self._event(day), day)
        )

    # Kinds of lines

    def _good(self, day: dt.date) -> list[bytes]:
        return [self.good(day)]

    def _duplicate(self, day: dt.date) -> list[bytes]:
        event = self._any_written(day)
        if self._dice.random() < 0.3:
            event["trace_id"] = "another trace"
        return [_spelled(event, self._dice)]

    def _both_at_once(self, day: dt.date) -> list[bytes]:
        """A new event, and again at once in another spelling, some just as deep as is taken."""
        event = self._event(day)
        depth = self._dice.choice([0, 0, 98, 99, 100, 101])
        if depth:
            # The event and its payload are two levels.
            event["payload"]["deep"] = _nested(depth - 2)
        self._remembered(event, day)
        return [_written(event), _spelled(event, self._dice)]

    def _conflict(self, day: dt.date) -> list[bytes]:
        event = self._any_written(day)
        change = self._dice.randrange(5)
        if change == 0:
            event["tenant_id"] += "2"
        elif change == 1:
            event["payload"]["more"] = 1
        elif change == 2:
            event["unknown"] = {"field": "that is not kept"}
        elif change == 3:
            event["payload"] = {**event["payload"], "note": event["payload"].get("note", "") + "\u0301"}
        elif isinstance(event["timestamp"], str):
            event["timestamp"] = (
                event["timestamp"].replace("Z", "+00:00").replace("z", "+00:00").replace("t", "T")
            )
        return [_spelled(event, self._dice) if self._dice.random() < 0.5 else _written(event)]

    def _look_alike(self, day: dt.date) -> list[bytes]:
        first = self._event(day)
        found = []
        for shape in self._dice.sample(_LOOK_ALIKES, 3):
            event = copy.deepcopy(first)
            event["event_id"] = shape.format(first["event_id"])
            found.append(_written(self._remembered(event, day)))
        event = copy.deepcopy(first)
        name = self._dice.choice(["event_id", "tenant_id", "aggregate_id", "event_type"])
        event[name] = f"{self._number}-".ljust(
            self._dice.choice([512, 513]), self._dice.choice("xä\U0001f600")
        )
        if name != "event_id":
            event["event_id"] += "-long"
        return [*found, _written(event)]

    def _malformed(self, day: dt.date) -> list[bytes]:
        good = _written(self._event(day))
        cut = good[: self._dice.randrange(1, len(good))]
        return [
            self._dice.choice(
                [
                    cut if not cut.endswith(b"\xc3") else good[:5],
                    b"not json",
                    good + b"x",
                    good + good,
                    good.replace(b":1", b":NaN", 1),
                    good.replace(b'"payload":{', b'"payload":{"n":-Infinity,', 1),
                    good.replace(b'"payload":{', b'"payload":{"n":01,', 1),
                    good.replace(b'"payload":{', b'"payload":{"n":1.,', 1),
                    good.replace(b'"payload":{', b'"payload":{"n":"\\ud800",', 1),
                    good.replace(b'"payload":{', b'"payload":{"n":"a\tb",', 1),
                    good.replace(b'"payload":{', b'"payload":{"n":' + b"[" * 150 + b"]" * 150 + b",", 1),
                    b"[" * 3_000,
                    b"'" + good + b"'",
                    b"\x00",
                    b"\xef\xbb\xbf{}x",
                    good.replace(b",", b",,", 1),
                    good.replace(b'"', b"'"),
                ]
            )
        ]

    def _not_utf8(self, day: dt.date) -> list[bytes]:
        good = _written(self._event(day))
        return [
            self._dice.choice(
                [good.replace(b'"note":"', b'"note":"\xff', 1), b"\xff\xfe{}", good[:20] + b"\xc3\x28"]
            )
        ]

    def _not_an_event(self, day: dt.date) -> list[bytes]:
        return [self._dice.choice([b"[]", b"5", b'"text"', b"null", b"true", b"{}", b'[{"event_id":"a"}]'])]

    def _key_twice(self, day: dt.date) -> list[bytes]:
        good = _written(self._event(day))
        return [
            self._dice.choice(
                [
                    good[:-1] + b',"tenant_id":"acme"}',
                    good.replace(b'"payload":{', b'"payload":{"note":1,', 1),
                    good[:-1] + b',"\\u0065vent_id":"x"}',
                    good.replace(b'"payload":{', b'"payload":{"z":{"a":1,"a":1},', 1),
                ]
            )
        ]

    def _bad_field(self, day: dt.date) -> list[bytes]:
        event, dice = self._event(day), self._dice
        name = dice.choice(
            [
                "event_id",
                "tenant_id",
                "aggregate_id",
                "event_type",
                "payload",
                "timestamp",
                "schema_version",
                "trace_id",
            ]
        )
        if name == "trace_id":
            event[name] = dice.choice([5, [], {}, True])
        elif dice.random() < 0.4:
            event.pop(name) if dice.random() < 0.5 else event.update({name: None})
        else:
            event[name] = dice.choice(_WRONG[name])
        return [_written(event)]

    def _unsafe_number(self, day: dt.date) -> list[bytes]:
        good = _written(self._event(day))
        number = self._dice.choice(
            [b"1e5", b"1E-2", b"9" * 39, b"0." + b"1" * 38, b"9" * 38, b"0." + b"1" * 37]
        )
        return [good.replace(b'"payload":{', b'"payload":{"number":' + number + b",", 1)]

    def _bad_time(self, day: dt.date) -> list[bytes]:
        event = self._event(day)
        event["timestamp"] = self._dice.choice(
            [
                f"{day}T10:00:00",
                f"{day} 10:00",
                f"{day}",
                f"{day}T10:00:00+10:60",
                f"{day}T10:00:00+24:00",
                f"{day}T10:00:00+0100",
                f"{day}T10:00:00Z ",
                f"{day}T10:00:00Z\n",
                f"{day}T24:30:00Z",
                f"{day}T10:61:00Z",
                f"{day}T10:00:00.Z",
                "2026-02-30T10:00:00Z",
                "２０２６-02-03T10:00:00Z",
                "yesterday",
                "1999-12-31T23:59:59.999999Z",
                "2000-01-01T00:00:00Z",
                "1969-01-01T00:00:00Z",
                "9999-12-31T23:59:59Z",
                f"{day + dt.timedelta(days=2)}T00:00:00Z",
                f"{day + dt.timedelta(days=1)}T23:59:59.999999Z",
                int((EARLIEST - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)).total_seconds() * 1000) - 1,
                -1,
                10**15,
                10**30,
                Decimal("1770000000000.5"),
                Decimal("1770000000000.0"),
            ]
        )
        return [_written(event)]

    def _size(self, day: dt.date) -> list[bytes]:
        event, dice = self._event(day), self._dice
        wanted = dice.choice(
            [MAX_RECORD_BYTES - 1, MAX_RECORD_BYTES, MAX_RECORD_BYTES + 1, 40_000, 1_200_000]
        )
        event["payload"]["filling"] = ""
        event["payload"]["filling"] = "x" * (wanted - len(_written(event)))
        line = _written(event)
        if wanted <= MAX_RECORD_BYTES:
            self._remembered(event, day)
        return [line]

    def _bad_payload(self, day: dt.date) -> list[bytes]:
        """Events that ingest takes, with payloads that normalize mostly does not."""
        event, dice = self._event(day), self._dice
        event["event_type"] = dice.choice(["OrderCreated", "PaymentProcessed"])
        payload: dict[str, Any] = {"customer_id": "customer-1", "amount": "4.00", "currency": "EUR"}
        what = dice.randrange(9)
        if what == 0:
            payload["amount"] = dice.choice(_ODD_AMOUNTS)
        elif what == 1:
            payload["amount"] = dice.choice(["12.50", "3"]) + dice.choice(_SEPARATORS)
        elif what == 2:
            payload["customer_id"] = dice.choice(
                [5, True, None, "", [], {}, "c" * 512, "c" * 513, Decimal("1.5")]
            )
        elif what == 3:
            payload["currency"] = dice.choice(
                ["eur", "EURO", "EU", "", 5, None, "EUR\n", "EUR\u2028", "ÄÖÜ", ["EUR"]]
            )
        elif what == 4:
            payload.pop(dice.choice(["amount", "customer_id", "currency"]))
        elif what == 5:
            payload = self._key_names_again(payload)
        elif what == 6:
            event["event_type"] = dice.choice(["Unheard", "ordercreated", "OrderCreated ", "O"])
        elif what == 7:
            event["schema_version"] = dice.choice([2, 2**31 - 1])
        else:
            event["event_type"], payload = "ItemShipped", {"amount": "no amount", "customer_id": 5}
        event["payload"] = payload
        return [_written(self._remembered(event, day))]

    def _key_names_again(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Beside a bad value a nested object with a good one under the same name."""
        dice = self._dice
        name, bad, good = dice.choice(
            [
                ("amount", Decimal("5.100000000000000000001"), Decimal("5.1")),
                ("amount", Decimal("5.123"), "5.12"),
                ("amount", "12.500", Decimal("12.5")),
                ("amount", Decimal("0.1000000000000000055511151231257827"), Decimal("0.1")),
                ("amount", [5], 5),
                ("amount", {"amount": 5}, 5),
                ("amount", True, True),
                ("amount", Decimal(12345678901234567), Decimal(12345678901234567)),
                ("customer_id", 5, "5"),
                ("customer_id", True, "true"),
                ("customer_id", {"customer_id": "customer-1"}, "customer-1"),
                ("currency", 5, "EUR"),
                ("currency", ["EUR"], "EUR"),
                ("amount", Decimal("5.10"), Decimal("7.777")),
                ("customer_id", "customer-1", 5),
            ]
        )
        nested = dice.choice([{name: good}, [{name: good}], {"x": {name: good}}, {name: good, "amount": 1}])
        return {"aa": nested, **payload, name: bad, "zz": nested, "text": f'"{name}":{good},'}


_KINDS = {
    "good": 40,
    "duplicate": 12,
    "both_at_once": 6,
    "conflict": 10,
    "look_alike": 3,
    "malformed": 6,
    "not_utf8": 2,
    "not_an_event": 2,
    "key_twice": 3,
    "bad_field": 6,
    "unsafe_number": 3,
    "bad_time": 6,
    "size": 2,
    "bad_payload": 16,
}
_GOOD_AMOUNTS = (
    "12.50", "0", "0.00", "3", "0007.10", "9999999999999999.99", 5, Decimal("1.1"), Decimal("2.5"), 0,
    Decimal("0.01"),
    Decimal("4503599627370497.5"), Decimal("9007199254740993"), Decimal("9999999999999999.99"),
)  # fmt: skip
_ODD_AMOUNTS = (
    "-1", -1, Decimal("-0.01"), "12.345", Decimal("12.345"), "12.500", "+5", "1e2", ".5", "5.", " 5", "5 ",
    "", "abc",
    "１２.50", "١٢", "12,50", "1_000", "0x10", "10000000000000000", 10**16, 10**20, "9" * 17, "NaN", True,
    False, None, [],
    {}, ["5"], "5\u0000", "--5", "1.2.3", Decimal("0.001"), Decimal("0.005"),
    Decimal("1.1000000000000000000000000001"),
    Decimal("9999999999999999.999"),
)  # fmt: skip
_WRONG: dict[str, tuple[Any, ...]] = {
    "event_id": (5, True, [], {}, "", "i" * 513),
    "tenant_id": (5, "a/b", "/", "", ["t"], "t" * 513),
    "aggregate_id": (7, "", {}, "a" * 513),
    "event_type": (1, "", False, "e" * 513),
    "payload": ("{}", [], 5, True, ""),
    "timestamp": (True, [], {}, Decimal("1.5")),
    "schema_version": (0, -1, "1", True, Decimal("1.5"), Decimal("1.0"), 2**31, [1], 10**20),
}


def _nested(depth: int) -> Any:
    value: Any = {}
    for number in range(depth - 1):
        value = [value] if number % 2 else {"d": value}
    return value


def _written(value: Any) -> bytes:
    """JSON as most libraries write it, numbers as they are."""
    return _text(value, lambda text: json.dumps(text, ensure_ascii=False), str, list, "").encode()


def _spelled(value: Any, dice: random.Random) -> bytes:
    """The same in another spelling: order of keys, white space, escapes, zeros."""

    def string(text: str) -> str:
        way = dice.random()
        if way < 0.3:
            return json.dumps(text)
        if way < 0.6:
            return (
                '"' + "".join(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else char for char in text) + '"'
            )
        return json.dumps(text, ensure_ascii=False)

    def number(item: Decimal) -> str:
        text = str(item)
        return text + "0" * dice.randrange(3) if "." in text else text

    def ordered(items: list[Any]) -> list[Any]:
        return dice.sample(items, len(items))

    space = dice.choice(["", " ", "  ", "\t", " \r"])
    return (space + _text(value, string, number, ordered, space) + dice.choice(["", " "])).encode()


def _text(value: Any, string: Any, number: Any, ordered: Any, space: str) -> str:
    def inner(item: Any) -> str:
        return _text(item, string, number, ordered, space)

    if isinstance(value, dict):
        parts = (f"{string(key)}{space}:{space}{inner(value[key])}" for key in ordered(list(value)))
        return "{" + f"{space},{space}".join(parts) + "}"
    if isinstance(value, list):
        return "[" + f"{space},".join(inner(item) for item in value) + "]"
    if isinstance(value, str):
        return string(value)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, Decimal):
        return number(value)
    return str(value)
