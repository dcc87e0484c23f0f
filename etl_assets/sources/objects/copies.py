"""Copies of objects on the disk of this machine, for the time of one batch.

A batch reads its files in several passes and by several processes. So its objects are copied once, into the
batch's folder, each in pieces; memory has one piece. A copy is compared with the object that was listed.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from etl_assets.errors import SourceChanged, SourceUnreadable
from etl_assets.sources.landing import Folders
from etl_assets.sources.objects.bucket import digits_of
from etl_assets.sources.objects.folders import ObjectFolders
from etl_assets.sources.source_files import SourceFile

_DIGITS = 1_000_000


@contextmanager
def local_copies(
    folders: Sequence[Folders], files: Sequence[SourceFile], at: Path
) -> Generator[tuple[Folders, ...]]:
    """Yield folders of this machine in which the files can be read; those of a bucket are copied.

    Raises:
        SourceUnavailable: the object store does not answer.
        SourceChanged: an object is not the one that was listed.
        SourceUnreadable: as reading the copies raises it, with the address of the object.
    """
    places: dict[str, str] = {}
    local: list[Folders] = []
    for number, each in enumerate(folders):
        if not isinstance(each, ObjectFolders):
            local.append(each)
            continue
        copies = Folders(
            source=each.source,
            path=at / str(number),
            format=each.format,
            pattern=each.pattern,
            by_day=each.by_day,
        )
        for file in files:
            if file.source == each.source:
                _copy(each, file, copies.path_of(file))
        places[str(copies.path)] = each.place
        local.append(copies)
    try:
        yield tuple(local)
    except SourceUnreadable as error:
        for path, place in places.items():
            if path in error.message:
                fields = {**error.fields, "file": str(error.fields.get("file")).replace(path, place)}
                raise SourceUnreadable(error.message.replace(path, place), fix=error.fix, **fields) from error
        raise


def _copy(folders: ObjectFolders, file: SourceFile, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    key = folders.key_of(file)
    found = folders.bucket.download(key, path)
    if found is None or (found.size, digits_of(found.tag)) != (file.size, file.mtime_ns % _DIGITS):
        what = "was removed" if found is None else "changed"
        raise SourceChanged(
            f"the object {folders.bucket.name}/{key} {what} before it was read",
            fix="nothing: the next run reads it as it is then, and nothing counts twice",
            file=f"{folders.bucket.name}/{key}",
            day=file.day,
        )
    os.utime(path, ns=(file.mtime_ns, file.mtime_ns))
