"""The position of a target: how far it has a table, and the replays of its dead letters.

Belongs here: the value, and how targets store it. Does not belong here: what a target needs from there
(`decision.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TOKEN, _REPLAYS = "#token=", "#replays="


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPosition:
    """How far a target has a table.

    Attributes:
        table_id: The table's id: a table that was created again has another.
        version: The target has every row of the table's versions up to this one.
        tombstones: The same for the table with the tombstones of its deleted rows; -1 if it has none.
        replays: The target has every row that was requested again for it up to this version of the table
            `replays`; -1 if there was none.
        token: The highest fencing token of a run that has written there; 0 if none has. Only what a target
            stores has it: it is no part of where the target is.
    """

    table_id: str
    version: int
    tombstones: int = -1
    replays: int = -1
    token: int = 0

    @property
    def stored_id(self) -> str:
        """The table's id as targets store it, with the token and the replays if there were any.

        Positions that were stored before there were tokens and replays stay as they are. A release without
        them finds the id of another table, and delivers everything.
        """
        token = f"{_TOKEN}{self.token}" if self.token else ""
        return f"{self.table_id}{token}" + (f"{_REPLAYS}{self.replays}" if self.replays >= 0 else "")

    @classmethod
    def stored(cls, stored_id: str, version: int, tombstones: int) -> SinkPosition:
        """Return the position that a target has stored."""
        named, _, replays = stored_id.partition(_REPLAYS)
        table_id, _, token = named.partition(_TOKEN)
        return cls(
            table_id=table_id,
            version=version,
            tombstones=tombstones,
            replays=int(replays) if replays else -1,
            token=int(token) if token else 0,
        )

    @classmethod
    def of_no_table(cls) -> SinkPosition:
        """Return the position of a target that nothing was delivered to, for a token to be stored with."""
        return cls(table_id="", version=-1)

    def as_json(self) -> dict[str, Any]:
        """Return the position as an object that is stored as JSON."""
        return {"table_id": self.stored_id, "version": self.version, "tombstones": self.tombstones}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> SinkPosition:
        """Return the position of an object that was stored as JSON."""
        return cls.stored(content["table_id"], content["version"], content.get("tombstones", -1))
