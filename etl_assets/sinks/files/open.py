"""Opening the sink of a declaration: the folder, or the object store with its address and credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

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
    from datetime import timedelta

    from obstore.exceptions import BaseError
    from obstore.store import from_url

    from etl_assets.errors import SettingsError
    from etl_assets.mirroring.stores.object_store import CONNECT_TIMEOUT, READ_TIMEOUT, ObjectStore

    is_azure = connection.root.startswith("az://")
    names = (
        ("azure_storage_endpoint", "", "azure_storage_account_name", "azure_storage_account_key")
        if is_azure
        else ("aws_endpoint", "aws_region", "aws_access_key_id", "aws_secret_access_key")
    )
    values = (
        connection.endpoint,
        connection.region,
        connection.access_key_id and connection.access_key_id.value(),
        connection.secret_access_key and connection.secret_access_key.value(),
    )
    given: Any = {name: value for name, value in zip(names, values, strict=True) if name and value}
    options: Any = {
        "connect_timeout": CONNECT_TIMEOUT,
        "read_timeout": READ_TIMEOUT,
        "timeout": timedelta(minutes=10),
        "allow_http": (connection.endpoint or "http:").startswith("http:"),
    }
    try:
        backend = from_url(
            connection.root.rstrip("/"),
            config={} if connection.root.startswith("gs://") else given,
            client_options=options,
        )
    except (BaseError, ValueError):
        # The library's words may hold a credential.
        raise SettingsError(
            f"the object store {connection.root} cannot be opened",
            fix="correct root, endpoint and region of the connection",
            field="root",
        ) from None
    return ObjectStore(backend, name=connection.root, copies=not is_azure)
