"""Files of sorted hashes, each with a day: find the days of many hashes without reading all of them.

There are a few runs, each sorted in itself, and a binary search in mapped memory looks hashes up. A new run
is merged with those of its size, so that runs stay few, and a hash is rewritten some twenty times at most.
The result may name a day too many, where two keys have one hash; it omits none.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etl_assets.delta.log.durability import write_durably

Hashes = npt.NDArray[np.uint64]
Days = npt.NDArray[np.int32]

LARGEST_RUN = 1 << 25
"""Runs are not merged beyond this many hashes (400 MB): a merge writes all of them again."""
_MERGED_AT_ONCE = 1 << 18
"""Hashes of each run that a merge holds in memory."""
_MANIFEST = "runs.json"


class Unreadable(Exception):
    """The files are not as they were written and must be rebuilt."""


@dataclass(frozen=True, slots=True)
class _Run:
    name: str
    size: int


class SortedRuns:
    """The runs of one folder, as of one manifest. `mark` is the caller's description of their content."""

    def __init__(self, folder: Path, runs: Sequence[_Run], mark: dict[str, Any]) -> None:
        self._folder = folder
        self._runs = tuple(runs)
        self.mark = mark

    @classmethod
    def load(cls, folder: Path) -> SortedRuns | None:
        """Load the runs of a folder, None if there are none.

        Raises:
            Unreadable: the manifest is broken.
        """
        try:
            content = json.loads((folder / _MANIFEST).read_text("utf-8"))
            runs = [_Run(name, size) for name, size in content["runs"]]
            return cls(folder, runs, content["mark"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise Unreadable(str(error)) from error

    def __len__(self) -> int:
        return sum(run.size for run in self._runs)

    def find(self, hashes: Hashes) -> tuple[frozenset[int], Hashes]:
        """Return the days that any of some hashes have, and which of them have any, sorted.

        Raises:
            Unreadable: a file is missing or broken.
        """
        # Duplicates stay: to remove them takes numpy a hundred times as long, and they do no harm.
        wanted = np.sort(hashes)
        found: set[int] = set()
        met = [np.empty(0, dtype=np.uint64)]
        for run in self._runs:
            keys, days = self._read(run)
            first, end = np.searchsorted(keys, wanted, "left"), np.searchsorted(keys, wanted, "right")
            lengths = end - first
            if lengths.any():
                met.append(wanted[lengths > 0])
                starts = np.repeat(first - np.cumsum(lengths) + lengths, lengths)
                found.update(np.unique(days[starts + np.arange(lengths.sum())]).tolist())
        return frozenset(found), each_once(np.concatenate(met))

    def add(self, hashes: Hashes, days: Days, mark: dict[str, Any]) -> SortedRuns:
        """Return the runs with more hashes, under a new mark.

        Until the manifest is replaced, the old runs are valid.

        Raises:
            Unreadable: a file is missing or broken.
        """
        runs, size = list(self._runs), len(hashes)
        order = np.argsort(hashes, kind="stable")
        parts = [(hashes[order], days[order])]
        while runs and runs[-1].size <= 2 * size and runs[-1].size + size <= LARGEST_RUN:
            size += runs[-1].size
            parts.insert(0, self._read(runs.pop()))
        if size:
            runs.append(self._write(parts, size))
        content = {"mark": mark, "runs": [[run.name, run.size] for run in runs]}
        write_durably(self._folder / _MANIFEST, json.dumps(content).encode())
        added = SortedRuns(self._folder, runs, mark)
        added._remove_others()
        return added

    def _write(self, parts: Sequence[tuple[Hashes, Days]], size: int) -> _Run:
        """Write sorted parts as one run."""
        self._folder.mkdir(parents=True, exist_ok=True)
        name = uuid.uuid4().hex
        with ExitStack() as files:
            opened = [
                files.enter_context((self._folder / f"{name}.{what}.npy").open("xb"))
                for what in ("hashes", "days")
            ]
            for file, values in zip(opened, parts[0], strict=True):
                descr = np.lib.format.dtype_to_descr(values.dtype)
                header = {"descr": descr, "fortran_order": False, "shape": (size,)}
                np.lib.format.write_array_header_1_0(file, header)
            for piece in _merged(parts):
                for file, values in zip(opened, piece, strict=True):
                    file.write(values.data)
            # Durable before the manifest names it: after a power loss a file may have its size and no
            # content.
            for file in opened:
                file.flush()
                os.fsync(file.fileno())
        return _Run(name, size)

    def _read(self, run: _Run) -> tuple[Hashes, Days]:
        try:
            hashes = np.load(self._folder / f"{run.name}.hashes.npy", mmap_mode="r", allow_pickle=False)
            days = np.load(self._folder / f"{run.name}.days.npy", mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise Unreadable(f"{run.name}: {error}") from error
        if not len(hashes) == len(days) == run.size:
            raise Unreadable(
                f"{run.name} has {len(hashes):,} hashes and {len(days):,} days, not {run.size:,}"
            )
        return hashes, days

    def _remove_others(self) -> None:
        """Remove files that no manifest names: merged runs, and files of killed processes."""
        names = {run.name for run in self._runs}
        for file in self._folder.glob("*.npy"):
            if file.name.partition(".")[0] not in names:
                file.unlink(missing_ok=True)


def each_once(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers sorted, each once, as `np.unique` does: that hashes them, which takes a hundred times as
    long for a million different ones.
    """
    in_order = np.sort(values)
    is_new = np.ones(len(in_order), dtype=bool)
    np.not_equal(in_order[1:], in_order[:-1], out=is_new[1:])
    return in_order[is_new]


def _merged(parts: Sequence[tuple[Hashes, Days]]) -> Iterator[tuple[Hashes, Days]]:
    """Yield the hashes of sorted parts in order, with their days, some of each part at a time."""
    begin = [0] * len(parts)
    while True:
        ahead = [
            keys[min(first + _MERGED_AT_ONCE, len(keys)) - 1]
            for first, (keys, _) in zip(begin, parts, strict=True)
            if first < len(keys)
        ]
        if not ahead:
            return
        # Every part has all of its hashes up to this one among those that are taken now or before.
        bound = min(ahead)
        end = [int(np.searchsorted(keys, bound, "right")) for keys, _ in parts]
        pieces = [(keys[i:j], days[i:j]) for i, j, (keys, days) in zip(begin, end, parts, strict=True)]
        hashes, days = (np.concatenate(each) for each in zip(*pieces, strict=True))
        order = np.argsort(hashes, kind="stable")
        yield hashes[order], days[order]
        begin = end
