"""Reading what is committed in a topic: the sink's position, and the keys that it has written.

Both are read by a producer's owner after `init_transactions`: no transaction of this sink is open then.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from etl_assets.errors import SinkUnavailable
from etl_assets.sinks.kafka.client import consumer_settings
from etl_assets.sinks.sink import SinkPosition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

SINK_HEADER = "etl-assets-sink"
STABLE_SECONDS = 60
_LAST_RECORDS = 200
_OFFSET_ATTEMPTS = 20
_MOVED = (
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_OR_PART",
)


def position(
    settings: Mapping[str, Any], admin: AdminClient, topic: str, *, sink: str, topic_id: str
) -> SinkPosition | None:
    """Return the newest position that a sink has committed; None if there is none for this topic.

    Args:
        settings: Settings of a client.
        admin: Asks for offsets.
        topic: The topic of positions.
        sink: Key of the sink's records in it.
        topic_id: The id of the target's topic: a position in one that was deleted does not count.
    """
    low, high = _offsets(admin, topic, 0)
    for begin in dict.fromkeys((max(low, high - _LAST_RECORDS), low)):
        newest = None
        for record in _committed(settings, topic, 0, begin, high):
            if record.key() == sink.encode() and record.value() is not None:
                newest = json.loads(record.value())
        if newest is not None:
            if newest.pop("topic_id") != topic_id:
                return None
            return SinkPosition.from_json(newest)
    return None


class WrittenKeys:
    """Keys that a sink has written and not deleted, in a temporary file: memory does not depend on them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def of(
        cls, settings: Mapping[str, Any], admin: AdminClient, topic: str, partitions: int, *, sink: str
    ) -> Generator[WrittenKeys]:
        """Read them from the topic. A key whose newest record another producer wrote is not the sink's."""
        with (
            tempfile.TemporaryDirectory(prefix="etl-assets-kafka-") as folder,
            closing(sqlite3.connect(f"{folder}/keys")) as connection,
        ):
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("CREATE TABLE keys (key BLOB PRIMARY KEY) WITHOUT ROWID")
            written = cls(connection)
            for partition in range(partitions):
                low, high = _offsets(admin, topic, partition)
                for record in _committed(settings, topic, partition, low, high):
                    is_ours = (SINK_HEADER, sink.encode()) in (record.headers() or ())
                    if is_ours and record.value() is not None:
                        connection.execute("INSERT OR IGNORE INTO keys VALUES (?)", [record.key()])
                    elif record.key() is not None:
                        written.discard(record.key())
            yield written

    def discard(self, key: bytes) -> None:
        """Forget a key."""
        self._connection.execute("DELETE FROM keys WHERE key = ?", [key])

    def __iter__(self) -> Iterator[bytes]:
        for (key,) in self._connection.execute("SELECT key FROM keys"):
            yield key


def _committed(
    settings: Mapping[str, Any], topic: str, partition: int, begin: int, end: int
) -> Iterator[Any]:
    """Yield committed records from one offset to another.

    Raises:
        SinkUnavailable: a transaction is open below the end for longer than `STABLE_SECONDS`.
        KafkaException: the cluster does not answer.
    """
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer(consumer_settings(settings))
    try:
        consumer.assign([TopicPartition(topic, partition, begin)])
        at, deadline = begin, time.monotonic() + STABLE_SECONDS
        while at < end:
            record: Any = consumer.poll(0.5)
            error = None if record is None else record.error()
            if record is not None and error is None:
                at, deadline = record.offset() + 1, time.monotonic() + STABLE_SECONDS
                if record.offset() < end:
                    yield record
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                at = record.offset()
            elif error is not None and error.code() not in _PASSING:
                raise KafkaException(error)
            if time.monotonic() > deadline:
                raise SinkUnavailable(
                    f"the topic {topic} cannot be read to its end: an open transaction, or no broker",
                    fix="wait for the other producer's transaction timeout, and see that the brokers are up",
                    sink=topic,
                )
    finally:
        consumer.close()


_PASSING = (-195, -187, -185)
"""_TRANSPORT, _ALL_BROKERS_DOWN, _TIMED_OUT: the client tries again by itself."""


def _offsets(admin: AdminClient, topic: str, partition: int) -> tuple[int, int]:
    """Return the first offset and the one after the last record, also of open transactions."""
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    where = TopicPartition(topic, partition)

    def offset(spec: OffsetSpec) -> int:
        asked = admin.list_offsets(
            {where: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=30
        )
        return int(asked[where].result().offset)

    for left in reversed(range(_OFFSET_ATTEMPTS)):
        try:
            return offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())
        except KafkaException as error:
            if not left or error.args[0].name() not in _MOVED:
                raise
            # The leader has changed, was restarted, or does not know a new topic yet: the client asks by what
            # it knew before. Asking for all topics creates none.
            admin.list_topics(timeout=30)
            time.sleep(0.5)
    raise AssertionError("unreachable")
