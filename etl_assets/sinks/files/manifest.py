"""The manifest of a dataset: which files are current, and the position that they have.

Belongs here: what a manifest says, its text and its name, and finding the newest one. Does not belong here:
writing data files (`data_files.py`) and removing old ones (`retention.py`).

Manifests are numbered without gaps. The one with the highest number is the newest, and nothing else counts:
a data file that it does not list is not part of the dataset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from etl_assets.errors import SinkRefused
from etl_assets.sinks.sink import SinkPosition

if TYPE_CHECKING:
    from etl_assets.mirroring.stores.store import Store

FORMAT = 1
FOLDER = "_manifests"
_NAME = re.compile(r"manifest-(\d{20})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFile:
    """A Parquet file of the dataset.

    Attributes:
        path: Relative to the dataset.
        rows: Number of rows.
        size_bytes: Its size.
        partition: Values of the partition columns as text, None for null; empty without partitions.
    """

    path: str
    rows: int
    size_bytes: int
    partition: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The dataset after one delivery.

    Attributes:
        number: Its number; each manifest follows the one before.
        attempt: Id of the attempt that wrote it.
        previous: Id of the attempt that wrote the manifest before, None for the first.
        position: The position of the dataset.
        written_at: When it was written, ISO 8601.
        columns: Column to type, as in the table's contract.
        keys: The key columns: at most one row of each.
        files: The current files. Their rows together are the table.
    """

    number: int
    attempt: str
    previous: str | None
    position: SinkPosition
    written_at: str
    columns: Mapping[str, str]
    keys: tuple[str, ...]
    files: tuple[DatasetFile, ...]

    @property
    def rows(self) -> int:
        """The number of rows in all files."""
        return sum(file.rows for file in self.files)

    def text(self) -> bytes:
        """Return the manifest as JSON."""
        content = {"format": FORMAT, **asdict(self), "position": self.position.as_json()}
        return json.dumps(content, indent=1).encode()


def manifest_key(target: str, number: int) -> str:
    """Return the key of a manifest in the store."""
    return f"{target}/{FOLDER}/manifest-{number:020d}.json"


def numbers(store: Store, target: str) -> list[int]:
    """Return the numbers of the manifests that are there, ascending."""
    names = (key.rsplit("/", 1)[-1] for key in store.list(f"{target}/{FOLDER}/"))
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))


def read(store: Store, target: str, number: int) -> Manifest | None:
    """Return a manifest; None if there is none of that number.

    Raises:
        SinkRefused: its format is not known to this version.
    """
    key = manifest_key(target, number)
    found = store.get(key)
    if found is None:
        return None
    try:
        return _parsed(json.loads(found.content))
    except (ValueError, KeyError, TypeError) as error:
        raise SinkRefused(
            f"{store.name}/{key} is no manifest that this version reads",
            fix="use the version that wrote it, or a target of its own",
            sink=f"{store.name}/{target}",
        ) from error


def newest(store: Store, target: str) -> Manifest | None:
    """Return the newest manifest; None if nothing was delivered."""
    for number in reversed(numbers(store, target)):
        # One that was listed and is gone has been replaced by newer ones, or belongs to a writer that lost.
        if (found := read(store, target, number)) is not None:
            return found
    return None


def _parsed(content: dict[str, Any]) -> Manifest:
    if content.pop("format") != FORMAT:
        raise ValueError("another format")
    values: dict[str, Any] = {
        **content,
        "position": SinkPosition.from_json(content["position"]),
        "keys": tuple(content["keys"]),
        "files": tuple(DatasetFile(**each) for each in content["files"]),
    }
    return Manifest(**values)
