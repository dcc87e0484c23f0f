"""From errors of Kafka's client to errors of a source: what may pass, and what has to be changed first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etl_assets.errors import SourceRefused, SourceUnavailable
from etl_assets.sources.kafka.heard import fix_of

if TYPE_CHECKING:
    from etl_assets.sources.kafka.heard import Heard


def error_of(cause: Any, topic: str, heard: Heard) -> SourceRefused | SourceUnavailable:
    """Return the error for a `KafkaError` about a topic.

    Args:
        cause: The error.
        topic: The topic.
        heard: What the client reported, which may say more.
    """
    from confluent_kafka import KafkaError

    refusals = {
        KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic, or correct `topic`",
        KafkaError._UNKNOWN_TOPIC: "create the topic, or correct `topic`",
        KafkaError.TOPIC_AUTHORIZATION_FAILED: "let the connection's user read and describe the topic",
        KafkaError.CLUSTER_AUTHORIZATION_FAILED: "let the connection's user describe the topic",
    }
    if (fix := refusals.get(cause.code()) or fix_of(cause)) is not None:
        return SourceRefused(f"the topic {topic} cannot be read: {cause.str()}", fix=fix, source=topic)
    return silent(topic, cause.str(), heard)


def silent(topic: str, why: str, heard: Heard) -> SourceRefused | SourceUnavailable:
    """Return the error for brokers that do not answer, or that do not let the client in."""
    if (refusal := heard.refusal) is not None:
        what, fix = refusal
        return SourceRefused(f"the topic {topic} cannot be read: {what}", fix=fix, source=topic)
    more = f" ({heard.said})" if heard.said else ""
    return SourceUnavailable(
        f"the brokers of the topic {topic} do not answer: {why}{more}",
        fix="see whether the brokers are up and the connection's bootstrap_servers are right; the step is"
        " repeated",
        source=topic,
    )


def silent_logger() -> Any:
    """Return the logger of Kafka's clients: what they report is in errors."""
    import logging

    logger = logging.getLogger("etl_assets.kafka")
    logger.setLevel(logging.CRITICAL)
    return logger
