"""The options of a Kafka source's clients, from a connection of the platform file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etl_assets.errors import SourceRefused
from etl_assets.pipelines.source_specs import ValueFormat
from etl_assets.settings.connections import KafkaConnection

if TYPE_CHECKING:
    from etl_assets.pipelines.source_specs import KafkaSource
    from etl_assets.settings import Settings
    from etl_assets.sources.kafka.registry_values import RegistryValues


def connection_of(source: KafkaSource, settings: Settings) -> KafkaConnection:
    """Return the connection that a source names.

    Raises:
        SourceRefused: the platform file has none of that name and type.
    """
    found = settings.connections.get(source.connection)
    if isinstance(found, KafkaConnection):
        return found
    known = [name for name, each in settings.connections.items() if isinstance(each, KafkaConnection)]
    raise SourceRefused(
        f"the platform file has no connection {source.connection!r} of type kafka",
        fix=f"add it under `connections:`, or use one of: {', '.join(known) or 'none is there'}",
        source=source.topic,
    )


def shown_brokers(source: KafkaSource, settings: Settings) -> str:
    """Return the brokers for people; the name of a connection that is missing."""
    found = settings.connections.get(source.connection)
    return ",".join(found.bootstrap_servers) if isinstance(found, KafkaConnection) else source.connection


def client_options(source: KafkaSource, settings: Settings) -> dict[str, Any]:
    """Return options for every Kafka client of a source.

    Raises:
        SourceRefused: the connection is missing.
        SettingsError: an environment variable with a secret is not set.
    """
    return connection_of(source, settings).client_options()


def registry_values(
    source: KafkaSource, settings: Settings, *, has_change_events: bool = False
) -> RegistryValues | None:
    """Return what decodes the values of a source; None for JSON without a schema.

    Args:
        source: The source.
        settings: The platform file.
        has_change_events: Whether its records are events of Debezium: their keys are decoded too, and values
            of its logical types are what columns take.

    Raises:
        SourceRefused: the connection is missing, or names no registry.
        SettingsError: an environment variable with a secret is not set.
    """
    if source.format is ValueFormat.JSON:
        return None
    from etl_assets.sources.kafka.registry import RegistryClient
    from etl_assets.sources.kafka.registry_values import RegistryValues

    registry = connection_of(source, settings).schema_registry
    if registry is None:
        raise SourceRefused(
            f"the format {source.format} needs a schema registry, and the connection {source.connection}"
            " names none",
            fix=f"add `schema_registry: {{url: …}}` to connections.{source.connection} of the platform file",
            source=source.topic,
        )
    client = RegistryClient(
        registry.url,
        user=registry.user,
        password=None if registry.password is None else registry.password.value(),
        ca_file=registry.ca_file,
        timeout_seconds=registry.timeout_seconds,
        topic=source.topic,
    )
    logical_types = None
    if has_change_events:
        from etl_assets.sources.debezium.avro_types import conversion_of

        logical_types = conversion_of
    return RegistryValues(
        client,
        is_avro=source.format is ValueFormat.AVRO,
        logical_types=logical_types,
        decodes_keys=has_change_events,
    )
