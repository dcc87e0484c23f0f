"""From the root of a domain, as settings and locators name it, to its store."""

from __future__ import annotations

from pathlib import Path

from etl_assets.mirroring.local_store import LocalStore
from etl_assets.mirroring.stores import Store


def open_store(root: str) -> Store:
    """Open a folder (`/data/a`) or a bucket (`s3://bucket/prefix`).

    Raises:
        SettingsError: the address holds credentials, or is of no known kind.
    """
    if "://" not in root:
        return LocalStore(Path(root))
    # Its library is loaded by platforms that have such a root, and by no others.
    from etl_assets.mirroring.object_store import ObjectStore

    return ObjectStore.open(root)
