"""Opening the store of a domain's root, as settings and locators name it."""

from __future__ import annotations

from pathlib import Path

from etl_assets.mirroring.stores.local_store import LocalStore
from etl_assets.mirroring.stores.store import Store


def open_store(root: str) -> Store:
    """Open a folder (`/data/a`) or a bucket (`s3://bucket/prefix`).

    Raises:
        SettingsError: the address contains credentials, or is of an unknown kind of store.
    """
    if "://" not in root:
        return LocalStore(Path(root))
    # Imported here, so that only platforms with such a root load the library.
    from etl_assets.mirroring.stores.object_store import ObjectStore

    return ObjectStore.open(root)
