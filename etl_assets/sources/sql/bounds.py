"""Keys of rows and what lies between two of them, as values.

Belongs here: positions as JSON that has every digit. Does not belong here: comparing keys, which only the
database does, in the order of its own types and collations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The value of one key column.

    Attributes:
        type: The database's name of its type.
        text: The value as a text from which the database makes exactly this value again.
    """

    type: str
    text: str

    def as_json(self) -> dict[str, str]:
        """Return the key as JSON."""
        return {"type": self.type, "value": self.text}

    @staticmethod
    def of(value: Mapping[str, Any]) -> Key:
        """Return the key of its JSON."""
        return Key(type=value["type"], text=value["value"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The incremental key of a row and the id that orders rows of equal keys."""

    key: Key
    id: Key

    def as_json(self) -> dict[str, Any]:
        """Return the pair as JSON."""
        return {"key": self.key.as_json(), "id": self.id.as_json()}

    @staticmethod
    def of(value: Mapping[str, Any] | None) -> Pair | None:
        """Return the pair of its JSON; None if there is none."""
        return None if not value else Pair(key=Key.of(value["key"]), id=Key.of(value["id"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBounds:
    """The rows after one pair up to another. Ends are included, beginnings are not.

    Attributes:
        after: The last pair that is left out; None for the beginning.
        until: The last pair that is taken; None for the end.
        overlap: How far before the key of `after` to begin in its place: seconds, or a number.
    """

    after: Pair | None = None
    until: Pair | None = None
    overlap: Decimal | None = None
