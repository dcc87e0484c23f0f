"""The data files that a log entry names: added files, change files, deletion vectors.

A replica must hold them before it may vote for the entry. Files that an entry removes are not among them.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from etl_assets.errors import ReplicaCorrupt

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_ENCODED_UUID = 20
_DELETION_VECTOR_FRAME = 8
"""Bytes around a deletion vector in its file: length before it, checksum after it."""


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A data file that a log entry names.

    Attributes:
        path: Path relative to the table's folder.
        size: Size in bytes according to the entry.
        exact: Whether the file has exactly this size. A file of deletion vectors may hold vectors of several
            entries, so that `size` is its minimum.
    """

    path: str
    size: int
    exact: bool = True

    def fits(self, size: int | None) -> bool:
        """Return whether a file of this size can be the named one; None is a missing file."""
        return size is not None and (size == self.size if self.exact else size >= self.size)


def files_named(entry: bytes) -> tuple[NamedFile, ...]:
    """Return the data files that one log entry adds.

    Raises:
        ReplicaCorrupt: the entry is not one of a Delta log, or names files outside of its table.
    """
    with _readable():
        return tuple(dict.fromkeys(file for action in _actions(entry) for file in _of_action(action)))


def files_added(add: Mapping[str, Any]) -> tuple[NamedFile, ...]:
    """Return the data files of one `add` action, as found in a checkpoint.

    Raises:
        ReplicaCorrupt: the action is not one of a Delta log, or names files outside of its table.
    """
    with _readable():
        return tuple(_of_action({"add": add}))


def files_removed(entry: bytes) -> frozenset[str]:
    """Return the paths of the files that one log entry removes from the table.

    Raises:
        ReplicaCorrupt: the entry is not one of a Delta log.
    """
    with _readable():
        return frozenset(
            unquote(action["remove"]["path"]) for action in _actions(entry) if "remove" in action
        )


def _actions(entry: bytes) -> list[Mapping[str, Any]]:
    actions = [json.loads(line) for line in entry.splitlines() if line.strip()]
    if not actions:
        raise ValueError("it is empty, as a power cut leaves a file")
    return actions


@contextmanager
def _readable() -> Generator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReplicaCorrupt(
            f"a log entry or checkpoint cannot be read ({error})",
            fix="look for a program that writes into the table's folder; `tables repair` takes the entry"
            " from a peer",
        ) from error


def _of_action(action: Mapping[str, Any]) -> Iterator[NamedFile]:
    for kind in ("add", "cdc"):
        if kind in action:
            yield NamedFile(_relative(unquote(action[kind]["path"])), int(action[kind]["size"]))
    vector = action.get("add", {}).get("deletionVector")
    if vector is not None and vector["storageType"] != "i":
        yield _vector_file(vector)


def _vector_file(vector: Mapping[str, Any]) -> NamedFile:
    if vector["storageType"] != "u":
        raise ValueError(f"a deletion vector is stored outside of the table: {vector['pathOrInlineDv']}")
    text = vector["pathOrInlineDv"]
    prefix, name = text[:-_ENCODED_UUID], uuid.UUID(bytes=_from_z85(text[-_ENCODED_UUID:]))
    folder = f"{prefix}/" if prefix else ""
    end = int(vector.get("offset") or 0) + int(vector["sizeInBytes"]) + _DELETION_VECTOR_FRAME
    return NamedFile(f"{folder}deletion_vector_{name}.bin", end, exact=False)


def _from_z85(text: str) -> bytes:
    """Decode ZeroMQ's Base85 (rfc.zeromq.org/spec/32), in which Delta writes the ids of deletion vectors."""
    words = []
    for start in range(0, len(text), 5):
        value = 0
        for letter in text[start : start + 5]:
            value = value * 85 + _Z85.index(letter)
        words.append(struct.pack(">I", value))
    return b"".join(words)


def _relative(path: str) -> str:
    if "://" in path or path.startswith("/") or path.startswith("file:") or ".." in path.split("/"):
        raise ValueError(f"it names a file outside of its table: {path}")
    return path
