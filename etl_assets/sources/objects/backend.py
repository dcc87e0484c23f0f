"""An object store by the connection that names it.

Belongs here: address, credentials and time limits. Does not belong here: what is read or written there.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from etl_assets.errors import SettingsError

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend

    from etl_assets.settings.connections import ObjectStoreConnection


def is_azure(connection: ObjectStoreConnection) -> bool:
    """Return whether it is a container of Azure."""
    return connection.root.startswith("az://")


def backend_of(connection: ObjectStoreConnection, *, retry_seconds: float | None = None) -> Backend:
    """Return the bucket or container of a connection. Nothing is sent yet.

    Args:
        connection: The connection.
        retry_seconds: For how long a request is repeated; by default as the library has it.

    Raises:
        SettingsError: the address cannot be used, or a secret is not set.
    """
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    from etl_assets.mirroring.stores.object_store import CONNECT_TIMEOUT, FIRST_BACKOFF, READ_TIMEOUT

    names = (
        ("azure_storage_endpoint", "", "azure_storage_account_name", "azure_storage_account_key")
        if is_azure(connection)
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
    retries: Any = None
    if retry_seconds is not None:
        retries = {
            "max_retries": 3,
            "retry_timeout": timedelta(seconds=retry_seconds),
            "backoff": {"init_backoff": FIRST_BACKOFF, "max_backoff": 8 * FIRST_BACKOFF, "base": 2},
        }
    try:
        return from_url(
            connection.root.rstrip("/"),
            config={} if connection.root.startswith("gs://") else given,
            client_options=options,
            retry_config=retries,
        )
    except (BaseError, ValueError):
        # The library's words may hold a credential.
        raise SettingsError(
            f"the object store {connection.root} cannot be opened",
            fix="correct root, endpoint and region of the connection",
            field="root",
        ) from None
