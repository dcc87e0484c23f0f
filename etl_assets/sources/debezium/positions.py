"""The place of a change in the log of its database, as a text: of two changes of a row the later one has the
higher text, byte by byte.

A text is a list of numbers of fixed width, the most significant first. The last one is 0 for a row of a
snapshot and 1 for a change of the log, so that at one place the change is newer.

| connector | numbers |
| --- | --- |
| mysql, mariadb | number of the binlog file, position of the event, row in it |
| postgresql | end of the last commit before the change (`sequence`), LSN of the change |
| sqlserver | `commit_lsn`, `change_lsn`, `event_serial_no` |
| oracle | `commit_scn`, `scn`, `rs_id`, `ssn` |
| mongodb | time of the operation, `ord` |

PostgreSQL's LSN alone does not do: a transaction that was open during a snapshot commits after it, and its
changes may lie before it. The rows of a snapshot have its LSN as both numbers.

Belongs here: from the source block of an event to the text. Does not belong here: the rest of the event
(`envelopes.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from etl_assets.pipelines.debezium_spec import Connector
from etl_assets.sources.debezium.not_an_event import NotAnEvent

Block = Mapping[str, Any]
_DIGITS = 20
"""Digits of any unsigned number of 64 bits."""
_BINLOG = re.compile(r"\.([0-9]{1,20})\Z")
_LSN = re.compile(r"([0-9a-f]{8}):([0-9a-f]{8}):([0-9a-f]{4})\Z")
_RS_ID = re.compile(r"(?:0x)?([0-9a-f]{1,16})\.([0-9a-f]{1,16})\.([0-9a-f]{1,16})\Z")
_NO_LSN = "00000000:00000000:0000"


def position_of(connector: Connector, block: Block, *, is_snapshot: bool) -> str:
    """Return the place of a change.

    Args:
        connector: The connector that wrote the event.
        block: The event's source block.
        is_snapshot: Whether the event is a row of a snapshot.

    Raises:
        NotAnEvent: the block does not say the place.
    """
    return "/".join((*_PARTS[connector](block, is_snapshot), "0" if is_snapshot else "1"))


def is_of_snapshot(block: Block) -> bool:
    """Return whether a source block says that its event is a row of a snapshot: `true`, `first`, `last`..."""
    return str(block.get("snapshot", "false")).lower() not in ("false", "none", "")


def _mysql(block: Block, is_snapshot: bool) -> tuple[str, ...]:
    file = block.get("file")
    found = _BINLOG.search(file) if isinstance(file, str) else None
    if found is None:
        raise _lacks("file", "such as `binlog.000003`")
    return found[1].zfill(_DIGITS), _number(block, "pos"), _number(block, "row", default=0)


def _postgresql(block: Block, is_snapshot: bool) -> tuple[str, ...]:
    lsn = _number(block, "lsn")
    return (lsn if is_snapshot else _last_commit(block.get("sequence")) or lsn), lsn


def _last_commit(sequence: Any) -> str | None:
    """Return the first number of `["24023119","24023128"]`; None if there is none."""
    if isinstance(sequence, str):
        try:
            sequence = json.loads(sequence)
        except ValueError:
            raise NotAnEvent("source.sequence is no list of two numbers") from None
    if not isinstance(sequence, list) or not sequence or sequence[0] is None:
        return None
    return _number({"sequence": sequence[0]}, "sequence")


def _sqlserver(block: Block, is_snapshot: bool) -> tuple[str, ...]:
    commit = _lsn(block, "commit_lsn")
    change = _NO_LSN if block.get("change_lsn") is None and is_snapshot else _lsn(block, "change_lsn")
    return commit, change, _number(block, "event_serial_no", default=0)


def _lsn(block: Block, name: str) -> str:
    value = block.get(name)
    if not isinstance(value, str) or not _LSN.match(value.lower()):
        raise _lacks(name, "such as `00000027:00000758:0005`")
    return value.lower()


def _oracle(block: Block, is_snapshot: bool) -> tuple[str, ...]:
    scn = _number(block, "scn")
    if is_snapshot:
        return scn, scn, *_rs_id(None), "0".zfill(_DIGITS)
    commit = scn if block.get("commit_scn") is None else _number(block, "commit_scn")
    return commit, scn, *_rs_id(block.get("rs_id")), _number(block, "ssn", default=0)


def _rs_id(value: Any) -> tuple[str, ...]:
    """Return the address in the redo log as three numbers; zeros without one."""
    found = _RS_ID.match(value.strip().lower()) if isinstance(value, str) else None
    return ("0" * 16,) * 3 if found is None else tuple(each.zfill(16) for each in found.groups())


def _mongodb(block: Block, is_snapshot: bool) -> tuple[str, ...]:
    # A snapshot of an empty log has the order -1.
    order = block.get("ord")
    return _number(block, "ts_ms"), _number({"ord": 0 if order == -1 else order}, "ord", default=0)


def _number(block: Block, name: str, default: int | None = None) -> str:
    value = block.get(name)
    if value is None and default is not None:
        value = default
    text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS:
        raise _lacks(name, "a whole number that is not negative")
    return text.zfill(_DIGITS)


def _lacks(name: str, what: str) -> NotAnEvent:
    return NotAnEvent(f"source.{name} is missing or is not what it should be: {what}")


_PARTS: Mapping[Connector, Callable[[Block, bool], tuple[str, ...]]] = {
    Connector.MYSQL: _mysql,
    Connector.MARIADB: _mysql,
    Connector.POSTGRESQL: _postgresql,
    Connector.SQLSERVER: _sqlserver,
    Connector.ORACLE: _oracle,
    Connector.MONGODB: _mongodb,
}
FIELDS: Mapping[Connector, tuple[str, ...]] = {
    Connector.MYSQL: ("file", "pos", "row"),
    Connector.MARIADB: ("file", "pos", "row"),
    Connector.POSTGRESQL: ("lsn", "sequence"),
    Connector.SQLSERVER: ("commit_lsn", "change_lsn", "event_serial_no"),
    Connector.ORACLE: ("commit_scn", "scn", "rs_id", "ssn"),
    Connector.MONGODB: ("ts_ms", "ord"),
}
"""Fields of the source block that say the place, for `add.fields` of flat events."""
