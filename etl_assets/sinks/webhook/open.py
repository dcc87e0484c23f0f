"""From a declaration and a connection to a webhook sink."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from etl_assets.errors import SettingsError
from etl_assets.settings.secret import TextWithSecrets
from etl_assets.sinks.webhook.client import Receiver
from etl_assets.sinks.webhook.signature import signing_key
from etl_assets.sinks.webhook.sink import WebhookSink, WebhookTarget

if TYPE_CHECKING:
    from etl_assets.pipelines.sink_specs.base import BaseSinkSpec
    from etl_assets.pipelines.sink_specs.webhook import WebhookSinkSpec
    from etl_assets.settings import Settings
    from etl_assets.settings.connections import Connection, WebhookConnection


def open_webhook(
    spec: BaseSinkSpec, connection: Connection, settings: Settings, pipeline: str
) -> WebhookSink:
    """Open the sink. Nothing is sent yet.

    Raises:
        SettingsError: a secret that the connection names cannot be read, or is of another form.
    """
    spec = cast("WebhookSinkSpec", spec)
    connection = cast("WebhookConnection", connection)
    secret = connection.signing_secret
    key = None if secret is None else signing_key(secret.value(), label=secret.label)
    return WebhookSink(
        WebhookTarget(
            receiver=receiver_of(connection),
            path=spec.path,
            write=connection.write,
            name=f"{pipeline}.{spec.sink_name}",
            methods={
                "new": spec.methods.new.value,
                "changed": spec.methods.changed.value,
                "deleted": spec.methods.deleted.value,
            },
            concurrency=connection.concurrency,
            signing_key=key,
        )
    )


def receiver_of(connection: WebhookConnection, *, seconds: float | None = None) -> Receiver:
    """Return how to reach the server of a connection.

    Args:
        connection: The connection.
        seconds: Time limit in place of the connection's own.

    Raises:
        SettingsError: a secret cannot be read.
    """
    return Receiver(
        url=connection.url,
        headers={name: _header(name, text) for name, text in connection.headers.items()},
        secrets=tuple(each.value() for each in connection.secrets()),
        ca_file=connection.ca_file,
        connect_timeout_seconds=seconds or connection.connect_timeout_seconds,
        timeout_seconds=seconds or connection.timeout_seconds,
        address_of=connection.address_of,
    )


def _header(name: str, text: str) -> str:
    """Return a header with the values of the environment; a line end in one would begin another header."""
    found = TextWithSecrets(text)
    value = found.value()
    if not re.fullmatch(r"[\x20-\x7e]*", value):
        sources = ", ".join(each.label for each in found.references)
        raise SettingsError(
            f"the header {name} of a connection has a character that is not visible ASCII",
            fix=f"see whether {sources} ends with a line feed",
            field=name,
        )
    return value
