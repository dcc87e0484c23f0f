"""Removing what readers no longer need: old manifests, replaced files, files of crashed attempts.

A manifest stays until the retention has passed since the next one was written, and the newest one always. A
file stays while a manifest that stays lists it. A file that no such manifest lists is removed only if the
manifest that it was written for is there or was there: no attempt that may still win loses a file.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from etl_assets.sinks.files.data_files import DATA, attempt_number
from etl_assets.sinks.files.manifest import manifest_key, numbers, read

if TYPE_CHECKING:
    from etl_assets.mirroring.stores.store import Store


def remove_old(store: Store, target: str, *, retention_seconds: float, now: float) -> int:
    """Remove what has been replaced for longer than the retention; returns the number of files.

    Args:
        store: The store of the dataset.
        target: The dataset in it.
        retention_seconds: How long a manifest and its files are kept after the next manifest was written.
        now: Seconds since 1970.
    """
    # 1. List data files before manifests: a file that is listed meanwhile is seen as listed.
    data = list(store.list(f"{target}/{DATA}/"))
    there = numbers(store, target)
    if not there:
        return 0
    # 2. A manifest was replaced when the next one was written.
    old = []
    for number, following in pairwise(there):
        replaced = store.modified(manifest_key(target, following))
        if replaced is not None and replaced < now - retention_seconds:
            old.append(number)
    kept = [number for number in there if number not in old]
    manifests = [read(store, target, number) for number in kept]
    listed = {f"{target}/{file.path}" for each in manifests if each is not None for file in each.files}
    # 3. Manifests first: none that is there ever lists a file that is gone.
    for number in old:
        store.delete(manifest_key(target, number))
    gone = [key for key in data if key not in listed and (attempt_number(key) or there[-1] + 1) <= there[-1]]
    for key in gone:
        store.delete(key)
    return len(gone)
