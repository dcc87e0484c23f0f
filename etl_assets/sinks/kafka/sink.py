"""The Kafka sink: rows as records, deletes as tombstones, and the position, in one transaction.

Belongs here: what a delivery does. Does not belong here: the form of records (`records.py`), topics
(`topics.py`), reading positions (`reading.py`).

The transactional id belongs to the sink, so the cluster lets one producer write at a time: a newer one ends
the transaction of the one before, and refuses it from then on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.contracts.trace_context import TRACEPARENT
from etl_assets.errors import ContractError, SinkFenced, SinkRefused, SinkUnavailable
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.sinks.kafka import reading, topics
from etl_assets.sinks.kafka.client import named
from etl_assets.sinks.kafka.records import keys, records, traceparents
from etl_assets.sinks.sink import Delivered, Delivery, Guarantee, Rejection, SinkPosition
from etl_assets.sources.kafka.heard import Heard

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient

    from etl_assets.contracts.columns import TableContract

TRANSACTION_TIMEOUT_SECONDS = 900
"""Brokers allow no more by default (`transaction.max.timeout.ms`)."""
_ANSWER_SECONDS = 60
_RECORD_OVERHEAD_BYTES = 150
_REJECTED_TOGETHER = 500


class KafkaSink:
    """A topic. EXACTLY_ONCE for readers with `isolation.level=read_committed`.

    A delivery is one transaction, so it has to end within the transaction timeout: the cluster aborts one
    that takes longer, and nothing of it is visible.
    """

    guarantee = Guarantee.EXACTLY_ONCE
    keeps_position = True
    applies_deletes = True

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        *,
        pipeline: str,
        name: str,
        create: topics.NewTopicSettings | None = None,
        transaction_timeout_seconds: int = TRANSACTION_TIMEOUT_SECONDS,
    ) -> None:
        """Name the target; nothing is sent yet.

        Args:
            settings: librdkafka's settings of the connection. They are not shown.
            topic: The topic.
            pipeline: The pipeline, for headers and the transactional id.
            name: The sink's name in it.
            create: How a missing topic is created; None to refuse it.
            transaction_timeout_seconds: How long a delivery may take.
        """
        self.target = f"kafka://{settings['bootstrap.servers']}/{topic}"
        self._heard = Heard()
        self._settings: dict[str, Any] = {**settings, "log_level": 0, "error_cb": self._heard}
        self._topic_name, self._create = topic, create
        self._pipeline, self._name = pipeline, name
        self._timeout_seconds = transaction_timeout_seconds
        self._id = f"etl-assets.{topic}.{pipeline}.{name}"
        self._producer: Producer | None = None
        self._admin_client: AdminClient | None = None
        self._topic: topics.Topic | None = None
        self._contract: TableContract | None = None

    def prepare(self, contract: TableContract) -> None:
        with self._naming():
            self._topic = topics.ensure(self._admin, self._topic_name, self._create, self._heard)
        self._contract = contract

    def position(self) -> SinkPosition | None:
        """Return the position that was committed last. Ends the transaction of a producer before this one."""
        with self._naming():
            if self._topic is None:
                self._topic = topics.ensure(self._admin, self._topic_name, self._create, self._heard)
            self._opened(self._topic)
            return reading.position(
                self._settings,
                self._admin,
                self._topic_name + topics.POSITIONS,
                sink=self._id,
                topic_id=self._topic.topic_id,
            )

    def deliver(self, delivery: Delivery) -> Delivered:
        contract, topic = self._contract, self._topic
        if contract is None or topic is None:
            raise ContractError("a sink is prepared before it is delivered to", fix="call prepare first")
        # 1. The position under this producer's epoch: from here on nobody moves it but by fencing this one.
        found = self.position()
        if found != delivery.before:
            raise SinkFenced(
                f"{self.target} is at {found}, and the delivery begins at {delivery.before}",
                fix="repeat the step: it begins at the target's position",
                sink=self.target,
            )
        # 2. Rows, deletes and the new position in one transaction.
        with self._transaction(topic) as producer:
            sending = _Sending(producer, self._topic_name, self._headers(delivery.after))
            figures = self._send(sending, contract, topic, delivery)
            failpoint(Failpoint.SINK_DURING_DELIVERY, table=contract.name)
            value = json.dumps({**delivery.after.as_json(), "topic_id": topic.topic_id}).encode()
            positions = self._topic_name + topics.POSITIONS
            sending.send(self._id.encode(), value, topic=positions, partition=0)
            failpoint(Failpoint.SINK_BEFORE_TARGET_COMMIT, table=contract.name)
            delivery.expect_current()
            self._commit(producer)
        failpoint(Failpoint.SINK_AFTER_TARGET_COMMIT, table=contract.name)
        return figures

    def close(self) -> None:
        # A producer that is left with an open transaction was dropped already.
        self._producer = self._admin_client = None

    @property
    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        if self._admin_client is None:
            self._admin_client = AdminClient(self._settings)
        return self._admin_client

    def _opened(self, topic: topics.Topic) -> Producer:
        """Return a producer whose transactional id is its own: older ones are fenced."""
        from confluent_kafka import Producer

        if self._producer is None:
            limit = max(1_000, min(topic.max_message_bytes, 1_000_000_000))
            producer = Producer(
                {
                    **self._settings,
                    "transactional.id": self._id,
                    "transaction.timeout.ms": self._timeout_seconds * 1000,
                    "message.timeout.ms": min(120, self._timeout_seconds) * 1000,
                    "message.max.bytes": limit,
                    "batch.size": min(limit, 1_000_000),
                    "linger.ms": 20,
                    "compression.type": "lz4",
                    "queue.buffering.max.kbytes": 32_768,
                    # As Kafka's own clients choose the partition of a key.
                    "partitioner": "murmur2_random",
                }
            )
            producer.init_transactions(_ANSWER_SECONDS)
            self._producer = producer
        return self._producer

    @contextmanager
    def _transaction(self, topic: topics.Topic) -> Generator[Producer]:
        """Run a block in a transaction; after an error it is aborted, and the producer is dropped."""
        from confluent_kafka import KafkaException

        with self._naming():
            producer = self._opened(topic)
            try:
                producer.begin_transaction()
                yield producer
            except BaseException:
                self._producer = None
                producer.purge()
                # Where this fails, the next producer of this id aborts it, or its timeout does.
                with suppress(KafkaException):
                    producer.abort_transaction(10)
                raise

    def _commit(self, producer: Producer) -> None:
        """Commit; repeat while the answer may still arrive."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + 2 * _ANSWER_SECONDS
        while True:
            try:
                producer.commit_transaction(_ANSWER_SECONDS)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return

    def _headers(self, after: SinkPosition) -> list[tuple[str, bytes]]:
        return [
            ("etl-assets-pipeline", self._pipeline.encode()),
            (reading.SINK_HEADER, self._id.encode()),
            ("etl-assets-version", str(after.version).encode()),
        ]

    def _send(
        self, sending: _Sending, contract: TableContract, topic: topics.Topic, delivery: Delivery
    ) -> Delivered:
        """Send rows and tombstones."""
        rejections = _Rejections(topic.max_message_bytes, sending.overhead, delivery)
        with self._old_keys(topic, whole=delivery.whole) as old:
            written = deleted = 0
            for batch in delivery.rows():
                traced = traceparents(batch, contract)
                for (key, value), traceparent in zip(records(batch, contract), traced, strict=True):
                    if old is not None:
                        old.discard(key)
                    more = 0 if traceparent is None else _header_bytes(TRACEPARENT, traceparent)
                    if rejections.take(key, value, more):
                        continue
                    sending.send(key, value, traceparent=traceparent)
                    written += 1
            rejections.store()
            for key in _gone(delivery, contract, old):
                sending.send(key, None)
                deleted += 1
        return Delivered(written=written, deleted=deleted, rejected=rejections.number)

    @contextmanager
    def _old_keys(self, topic: topics.Topic, *, whole: bool) -> Generator[reading.WrittenKeys | None]:
        """Give the keys that a whole delivery may have to delete."""
        if not whole:
            yield None
            return
        with reading.WrittenKeys.of(
            self._settings, self._admin, self._topic_name, topic.partitions, sink=self._id
        ) as written:
            yield written

    @contextmanager
    def _naming(self) -> Generator[None]:
        try:
            from confluent_kafka import KafkaException
        except ImportError as error:
            raise SinkRefused(
                "kafka: the package confluent-kafka is not installed",
                fix="pip install 'etl-assets[kafka]'",
                sink=self.target,
            ) from error
        try:
            yield
        except KafkaException as error:
            self._heard.listen(self._producer, self._admin_client)
            raise named(error.args[0], self.target, self._heard) from error


class _Sending:
    """Sends records of one transaction; waits while the client's buffer is full."""

    def __init__(self, producer: Producer, topic: str, headers: list[tuple[str, bytes]]) -> None:
        self._producer, self._topic = producer, topic
        self._headers: Any = headers
        self.overhead = _RECORD_OVERHEAD_BYTES + sum(_header_bytes(name, value) for name, value in headers)

    def send(
        self,
        key: bytes,
        value: bytes | None,
        *,
        topic: str | None = None,
        partition: int = -1,
        traceparent: str | None = None,
    ) -> None:
        headers = self._headers
        if traceparent is not None:
            headers = [*headers, (TRACEPARENT, traceparent.encode())]
        deadline = time.monotonic() + 2 * _ANSWER_SECONDS
        while True:
            try:
                self._producer.produce(topic or self._topic, value, key, partition=partition, headers=headers)
            except BufferError as error:
                if time.monotonic() > deadline:
                    raise SinkUnavailable(
                        f"kafka: {self._topic} takes no records",
                        fix="see that the brokers are up and reachable",
                        sink=self._topic,
                    ) from error
                self._producer.poll(0.01)
            else:
                return


class _Rejections:
    """Rows that are too large for the topic; they are stored before the transaction commits."""

    def __init__(self, limit: int, overhead: int, delivery: Delivery) -> None:
        self._limit, self._overhead, self._delivery = limit, overhead, delivery
        self._waiting: list[Rejection] = []
        self.number = 0

    def take(self, key: bytes, value: bytes, more: int) -> bool:
        """Return whether the row is rejected; `more` are bytes of headers of its own."""
        size = len(key) + len(value) + self._overhead + more
        if size <= self._limit:
            return False
        self._waiting.append(
            Rejection(
                keys=key.decode(),
                row=value.decode(),
                reason=DeadLetterReason.RECORD_TOO_LARGE,
                error=f"{size} bytes with headers; the topic takes {self._limit} (max.message.bytes)",
            )
        )
        self.number += 1
        if len(self._waiting) >= _REJECTED_TOGETHER:
            self.store()
        return True

    def store(self) -> None:
        """Store the rows that wait."""
        if self._waiting:
            self._delivery.reject(self._waiting)
            self._waiting = []


def _header_bytes(name: str, value: str | bytes) -> int:
    return len(name) + len(value) + 10


def _gone(delivery: Delivery, contract: TableContract, old: reading.WrittenKeys | None) -> Iterator[bytes]:
    """Yield the keys of deleted rows: of a whole delivery what the topic has and the table has not."""
    if old is not None:
        yield from old
        return
    for batch in delivery.deleted():
        yield from keys(batch, contract)
