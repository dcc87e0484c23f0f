"""A problem of a pipeline file: where it is, what is wrong, and the fix.

Belongs here: the value, and how places in a declaration are written. Does not belong here: finding problems.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

Path = tuple[str | int, ...]
"""The keys and indexes that lead to a place of a declaration."""
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a pipeline file.

    Attributes:
        line: The line of the file, from 1; None for the file as a whole.
        field: The place in the declaration, such as `transforms[1].where`; empty for the file as a whole.
        message: What is wrong.
        fix: What to do.
        value: The value found, if it is one that is wrong and may be shown.
        allowed: The values that it may have, if they are few.
    """

    line: int | None
    field: str
    message: str
    fix: str
    value: str | None = None
    allowed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Parts of these texts are from the file: they must not steer the terminal, nor fail to be printed.
        for name in ("field", "message", "fix"):
            object.__setattr__(self, name, printable(getattr(self, name)))
        if self.value is not None:
            object.__setattr__(self, "value", printable(self.value))

    def as_json(self) -> dict[str, Any]:
        """Return the problem as JSON has it."""
        return {**asdict(self), "allowed": [*self.allowed]}


def dotted(path: Path) -> str:
    """Return a place as people write it: `transforms[1].where`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{_key(part)}" for part in path)
    return "".join(parts).removeprefix(".")


def printable(text: str) -> str:
    """Return a text in one line, with escapes for characters that cannot be seen or printed."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in " ".join(text.splitlines())
    )


def _key(key: str) -> str:
    return key if len(key) <= _SHOWN and re.fullmatch(r"[\w-]+", key) else repr(key[:_SHOWN])


def near(given: str, names: Collection[str]) -> str:
    """Return `did you mean …? ` with the closest of some names; empty if none is close."""
    close = difflib.get_close_matches(given.lower(), names, n=1)
    return f"did you mean `{close[0]}`? " if close else ""
