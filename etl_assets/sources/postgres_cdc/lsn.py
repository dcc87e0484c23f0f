"""Log sequence numbers: places in PostgreSQL's log, as integers and as its texts, such as `0/16B3748`."""

from __future__ import annotations

import re

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def lsn_text(lsn: int) -> str:
    """Return a place as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Return a place in the log, in bytes from its beginning.

    Raises:
        ValueError: the text is not one.
    """
    if (found := _TEXT.fullmatch(text)) is None:
        raise ValueError(f"{text!r} is not a place in PostgreSQL's log, such as 0/16B3748")
    return int(found[1], 16) << 32 | int(found[2], 16)
