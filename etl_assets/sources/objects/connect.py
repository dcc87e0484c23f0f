"""The bucket of a source, from a connection of the platform file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.errors import SourceRefused
from etl_assets.settings.connections import ObjectStoreConnection
from etl_assets.sources.objects.backend import backend_of
from etl_assets.sources.objects.bucket import Bucket

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend

    from etl_assets.settings import Settings

_RETRY_SECONDS = 10.0


def bucket_of(name: str, settings: Settings) -> Bucket:
    """Return the bucket of a connection. What is wrong with the connection is raised when it is first used.

    Its requests raise:
        SourceRefused: the platform file has no connection of that name and type.
        SettingsError: an environment variable with a secret is not set.
    """
    found = settings.connections.get(name)

    def open_backend() -> Backend:
        if isinstance(found, ObjectStoreConnection):
            return backend_of(found, retry_seconds=_RETRY_SECONDS)
        known = [each for each, of in settings.connections.items() if isinstance(of, ObjectStoreConnection)]
        raise SourceRefused(
            f"the platform file has no connection {name!r} of type object_store",
            fix=f"add it under `connections:`, or use one of: {', '.join(known) or 'none is there'}",
            source=name,
        )

    shown = found.root.rstrip("/") if isinstance(found, ObjectStoreConnection) else name
    return Bucket(shown, open_backend)
