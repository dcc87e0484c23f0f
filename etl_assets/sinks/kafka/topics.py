"""Topics of the sink: the target, created only if the sink says so, and the topic of its positions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.errors import SinkRefused

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from etl_assets.sources.kafka.heard import Heard

TIMEOUT_SECONDS = 30
POSITIONS = ".etl-assets-positions"
_SETTLE_SECONDS = 15
"""How long a broker may list a topic that was deleted, or not know one that was created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopicSettings:
    """How a missing topic is created."""

    partitions: int = 1
    replication: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as the cluster has it.

    Attributes:
        topic_id: Its id: a topic that was created again has another.
        partitions: Number of its partitions.
        max_message_bytes: The largest batch of records that it takes.
    """

    topic_id: str
    partitions: int
    max_message_bytes: int


def ensure(admin: AdminClient, name: str, create: NewTopicSettings | None, heard: Heard) -> Topic:
    """Return the target's topic, created if that is wanted, and create the topic of positions beside it.

    Args:
        admin: The client.
        name: The topic.
        create: How it is created if it is missing; None to refuse that.
        heard: What the client reports.

    Raises:
        SinkRefused: there is no such topic, and it is not to be created.
        KafkaException: the cluster does not answer, or refuses.
    """
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        try:
            _create_missing(admin, name, create, heard)
            return describe(admin, name)
        except KafkaException as error:
            if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART" or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def describe(admin: AdminClient, name: str) -> Topic:
    """Return a topic that exists."""
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import ConfigResource, ResourceType

    asked = admin.describe_topics(TopicCollection([name]), request_timeout=TIMEOUT_SECONDS)
    found = asked[name].result()
    resource = ConfigResource(ResourceType.TOPIC, name)
    config = admin.describe_configs([resource], request_timeout=TIMEOUT_SECONDS)[resource].result()
    return Topic(
        topic_id=str(found.topic_id),
        partitions=len(found.partitions),
        max_message_bytes=int(config["max.message.bytes"].value),
    )


def _create_missing(admin: AdminClient, name: str, create: NewTopicSettings | None, heard: Heard) -> None:
    there = heard.ask(lambda turn: admin.list_topics(timeout=turn), TIMEOUT_SECONDS, admin).topics
    if name not in there:
        if create is None:
            raise SinkRefused(
                f"there is no topic {name}",
                fix="create it, or let the sink do it by `create: {partitions: 6, replication: 3}`",
                sink=name,
            )
        _create(admin, name, create.partitions, create.replication, {"cleanup.policy": "compact"})
    if name + POSITIONS not in there:
        partitions = there[name].partitions if name in there else {}
        replicas = [len(each.replicas) for each in partitions.values()]
        replication = min(replicas, default=create.replication if create else 1)
        # Small segments, so that compaction keeps it short: each delivery adds a record.
        _create(
            admin,
            name + POSITIONS,
            1,
            replication,
            {"cleanup.policy": "compact", "segment.ms": "3600000", "segment.bytes": str(4 * 1024 * 1024)},
        )


def _create(admin: Any, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    topic = NewTopic(name, num_partitions=partitions, replication_factor=replication, config=dict(config))
    try:
        admin.create_topics([topic], operation_timeout=TIMEOUT_SECONDS)[name].result()
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise
