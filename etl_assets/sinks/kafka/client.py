"""Settings of the consumer that reads positions, and errors of clients as those of a sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from etl_assets.errors import EtlAssetsError, SinkFenced, SinkRefused, SinkUnavailable
from etl_assets.sources.kafka.heard import fix_of

if TYPE_CHECKING:
    from etl_assets.sources.kafka.heard import Heard

_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
_REFUSED = (
    "UNKNOWN_TOPIC_OR_PART",
    "TOPIC_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "INVALID_TRANSACTION_TIMEOUT",
    "MSG_SIZE_TOO_LARGE",
    "INVALID_REPLICATION_FACTOR",
    "INVALID_PARTITIONS",
)


def consumer_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a consumer that reads what is committed, to the end, and stores no offsets."""
    return {
        **settings,
        "group.id": "etl-assets-sink",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 50,
        "queued.max.messages.kbytes": 16_384,
        "log_level": 0,
    }


def named(error: Any, target: str, heard: Heard | None = None) -> EtlAssetsError:
    """Return the error of a sink for a `KafkaError`. Its text holds no values of rows.

    Args:
        error: The error.
        target: The target.
        heard: What the client reported, which may say more.
    """
    refusal = None if heard is None else heard.refusal
    if (fix := fix_of(error)) is not None:
        refusal = error.str(), fix
    name = error.name()
    if name == "_FATAL" and heard is not None and heard.fatal:
        name = heard.fatal
    if name in _FENCED:
        return SinkFenced(
            f"{target}: another producer has taken over the topic for this sink",
            fix="repeat the step: it begins at the target's position",
            sink=target,
        )
    if name in _REFUSED:
        return SinkRefused(
            f"{target}: Kafka refuses the delivery ({name}: {error.str()})",
            fix="compare the topic and its settings with the sink's, and the user's privileges",
            sink=target,
        )
    if refusal is not None:
        return SinkRefused(f"{target}: {refusal[0]}", fix=refusal[1], sink=target)
    more = f" ({heard.said})" if heard is not None and heard.said else ""
    return SinkUnavailable(
        f"{target}: {name}: {error.str()}{more}",
        fix="see that the brokers are up and reachable; the step is repeated",
        sink=target,
    )
