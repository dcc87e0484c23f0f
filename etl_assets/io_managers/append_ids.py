"""Identities of appends: which rows a run has appended already, and what a repeated run has left to do.

An append is identified by its run and its partition keys. A retry of the step belongs to the same run, and so
does a re-execution, by Dagster's root run. A run over many partitions may have been committed in parts: the
halves of halves that `partition_split.py` makes, each with an identity of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence

from etl_assets.delta.asset_record import APPEND_IDS
from etl_assets.delta.snapshot import Snapshot
from etl_assets.delta.write.write import Transaction
from etl_assets.io_managers.partition_split import halves

_DIGEST_LENGTH = 16


def append_of(run: str, keys: Sequence[str]) -> Transaction:
    """Return the identity of a run's append for some partitions; without keys, for an unpartitioned asset."""
    digest = hashlib.sha256(json.dumps(list(keys)).encode()).hexdigest()[:_DIGEST_LENGTH]
    return Transaction(app_id=f"{APPEND_IDS}{run}/{digest}", version=0)


def left_to_append(run: str, keys: Sequence[str], snapshot: Snapshot | None) -> list[Sequence[str]]:
    """Return the parts of a run's partitions that a table lacks.

    If it lacks all of them, they are one part.
    """
    if snapshot is None:
        return [keys]
    ids = {append_of(run, part).app_id for part in _parts(keys)}
    known = snapshot.transaction_versions(ids)
    # An undo that took the rows of an append out has set its id back.
    return _left(run, keys, {name for name, version in known.items() if version >= 0})


def _left(run: str, keys: Sequence[str], known: Collection[str]) -> list[Sequence[str]]:
    if append_of(run, keys).app_id in known:
        return []
    if len(keys) < 2:
        return [keys]
    parts = halves(keys)
    left = [each for part in parts for each in _left(run, part, known)]
    return [keys] if left == list(parts) else left


def _parts(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    yield keys
    if len(keys) > 1:
        for half in halves(keys):
            yield from _parts(half)
