"""How far a delivery is: what a webhook sink saves of it.

Rows and deleted keys come in the same order each time a delivery is carried out. So two numbers say what is
done, and the calls that were answered beyond them are named by their places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CallProgress:
    """Calls with a final answer.

    Attributes:
        rows: All rows before this one.
        keys: All deleted keys before this one; they come after the rows.
        answered: Places beyond, of the part that is under way.
        written: Rows that were taken.
        deleted: Deleted keys that were taken.
        unchanged: Deleted keys that the receiver did not have.
        rejected: Rows and keys that were refused.
    """

    rows: int = 0
    keys: int = 0
    answered: tuple[int, ...] = ()
    written: int = 0
    deleted: int = 0
    unchanged: int = 0
    rejected: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return what is saved: places as ranges, each the first one and the one after the last."""
        return {**asdict(self), "answered": _ranges(self.answered)}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any] | None) -> CallProgress:
        """Return what was saved; nothing is done if there is none."""
        if saved is None:
            return cls()
        answered = tuple(each for first, end in saved["answered"] for each in range(first, end))
        return cls(**{**saved, "answered": answered})

    def after_rows(self, number: int) -> CallProgress:
        """Return the progress after a part of rows that is done."""
        return replace(self, rows=self.rows + number, answered=())

    def after_keys(self, number: int) -> CallProgress:
        """Return the progress after a part of deleted keys that is done."""
        return replace(self, keys=self.keys + number, answered=())


def _ranges(places: tuple[int, ...]) -> list[list[int]]:
    found: list[list[int]] = []
    for place in sorted(places):
        if found and found[-1][1] == place:
            found[-1][1] += 1
        else:
            found.append([place, place + 1])
    return found
