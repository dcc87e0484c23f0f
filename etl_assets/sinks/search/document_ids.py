r"""Ids of documents: one text for the keys of a row, and never the same text for other keys.

Belongs here: the text of a key. Does not belong here: which columns are keys (the table's contract).

A key of one column is its own text: `17`, `film-17`, `2026-11-23`. Several are joined by `|`. A backslash
escapes what would be ambiguous: `\\` and `\|` are the two characters, `\E` is an empty text, `\N` is no
value, and `\H` begins the SHA-256 of a text that is longer than an engine takes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from etl_assets.contracts.scalar_texts import scalar_texts

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ID_BYTES = 512
"""The engine's limit for an id in UTF-8."""


def document_ids(keys: Sequence[pa.Array]) -> pa.Array:
    """Return the ids of rows as an array of strings.

    Args:
        keys: The key columns in the order of the contract, of the same length.
    """
    import pyarrow.compute as pc

    parts = [_escaped(column) for column in keys]
    ids = parts[0] if len(parts) == 1 else pc.call_function("binary_join_element_wise", [*parts, "|"])
    too_long = pc.call_function("greater", [pc.call_function("binary_length", [ids]), MAX_ID_BYTES])
    if not pc.call_function("any", [too_long]).as_py():
        return ids
    return pc.call_function("if_else", [too_long, _hashed(ids), ids])


def _hashed(ids: pa.Array) -> pa.Array:
    import pyarrow as pa

    return pa.array([r"\H" + hashlib.sha256(each.encode()).hexdigest() for each in ids.to_pylist()])


def _escaped(column: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    text = _replaced(_replaced(scalar_texts(column), "\\", "\\\\"), "|", "\\|")
    is_empty = pc.call_function("equal", [text, ""])
    return pc.fill_null(pc.call_function("if_else", [is_empty, r"\E", text]), r"\N")


def _replaced(text: pa.Array, pattern: str, replacement: str) -> pa.Array:
    import pyarrow.compute as pc

    return pc.call_function("replace_substring", [text], pc.ReplaceSubstringOptions(pattern, replacement))
