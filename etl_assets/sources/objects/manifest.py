"""A manifest: the object that names the files of a source.

Belongs here: its forms. Does not belong here: reading it, and the files that it names (`folders.py`).
"""

from __future__ import annotations

import json
from typing import Any

MAX_MANIFEST_BYTES = 64 << 20
_FIELDS = ("path", "key", "url")


def names_in(content: bytes, *, root: str) -> frozenset[str]:
    """Return the keys that a manifest names, below the root of the connection.

    A manifest is JSON, `["a.csv"]` or `{"files": ["a.csv", {"path": "b.csv"}]}`, or a text with a key on each
    line. A key may also be written as an address below the root.

    Raises:
        ValueError: it has another form. The message says which.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    if text.lstrip()[:1] in ("{", "["):
        try:
            entries = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"it is no JSON (line {error.lineno}: {error.msg})") from None
        if isinstance(entries, dict):
            entries = entries.get("files")
        if not isinstance(entries, list):
            raise ValueError("it has no list `files`")
        names = [_name(each) for each in entries]
    else:
        names = [line.strip() for line in text.splitlines() if line.strip()]
    return frozenset(name.removeprefix(f"{root.rstrip('/')}/") for name in names)


def _name(entry: Any) -> str:
    if isinstance(entry, dict):
        entry = next((entry[field] for field in _FIELDS if field in entry), None)
    if not isinstance(entry, str):
        raise ValueError("an entry of `files` has neither a path nor a key nor a url")
    return entry
