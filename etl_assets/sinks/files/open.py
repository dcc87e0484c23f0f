"""Opening the sink of a declaration: the folder, or the object store with its address and credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from etl_assets.settings.connections import FolderConnection, ObjectStoreConnection
from etl_assets.sinks.files.sink import FilesSink

if TYPE_CHECKING:
    from etl_assets.mirroring.stores.store import Store
    from etl_assets.pipelines.sink_specs.base import BaseSinkSpec
    from etl_assets.pipelines.sink_specs.files import FilesSinkSpec
    from etl_assets.settings import Settings
    from etl_assets.settings.connections import Connection


def open_files(spec: BaseSinkSpec, connection: Connection, settings: Settings, pipeline: str) -> FilesSink:
    """Open the sink.

    Raises:
        SettingsError: the address cannot be used, or a secret is not set.
        SinkRefused: the target leaves the connection's folder.
    """
    files = cast("FilesSinkSpec", spec)
    if isinstance(connection, FolderConnection):
        root, store = str(settings.home / connection.path), None
    else:
        assert isinstance(connection, ObjectStoreConnection)
        root, store = connection.root.rstrip("/"), _object_store(connection)
    return FilesSink(
        root,
        files.target,
        partition_by=files.partition_by,
        retention_hours=files.retention_hours,
        store=store,
    )


def _object_store(connection: ObjectStoreConnection) -> Store:
    from etl_assets.mirroring.stores.object_store import ObjectStore
    from etl_assets.sources.objects.backend import backend_of, is_azure

    return ObjectStore(backend_of(connection), name=connection.root, copies=not is_azure(connection))
