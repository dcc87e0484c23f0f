"""A producer of records that may be sent again: in transactions, each under an id that stays the same.

What is sent twice, after a kill or a lost answer, has the same ids the second time, so that a pipeline that
reads the topic counts it once.

Belongs here: sending. Does not belong here: the ids themselves (`produced_ids.py`), files and lines
(`produced_lines.py`), and the sink, which follows a table (`sink.py`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import orjson

from etl_assets.contracts.trace_context import TRACEPARENT, trace_id_of
from etl_assets.errors import InputError, SinkRefused, SinkUnavailable
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.sinks.kafka.client import named
from etl_assets.sinks.kafka.produced_ids import event_id_of, traceparent_of
from etl_assets.sources.kafka.client_errors import silent_logger
from etl_assets.sources.kafka.heard import Heard

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

EVENT_ID = "event_id"
"""Header with a record's id, beside that of its W3C trace context."""
TRANSACTION_TIMEOUT_SECONDS = 60
MAX_TRANSACTION_SECONDS = 10.0
"""A transaction is committed at the first record after this time, or by `commit_if_due`."""
_ANSWER_SECONDS = 60.0


class KafkaProducer:
    """Sends records to a topic: idempotent, acknowledged by all replicas, in transactions.

    A consumer with `isolation.level=read_committed` sees whole transactions only. The transactional id is
    made of topic and input: a second producer of the same input ends the first one's transaction.

    Args:
        options: Options of librdkafka for the cluster.
        topic: The topic.
        input_id: Identifies what is sent. The n-th record of one input has one event id.
        records_per_transaction: Most records of a transaction.

    Raises, from every call:
        SinkUnavailable: the brokers do not answer. Whether the last transaction was committed is unknown:
            send the input again.
        SinkRefused: the topic is missing, or a record is too large for it.
        SinkFenced: another producer sends the same input.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        topic: str,
        *,
        input_id: str,
        records_per_transaction: int = 10_000,
    ) -> None:
        if not input_id:
            raise InputError("an input has an id", fix="name what is sent, such as a file and its version")
        self.topic, self.input_id = topic, input_id
        self.sent = self.transactions = 0
        self._options, self._most = options, records_per_transaction
        self._client: Producer | None = None
        self._open = 0
        self._began = 0.0
        self._heard = Heard()
        self._undelivered: KafkaError | None = None

    def send(
        self,
        value: bytes | str | Mapping[str, Any],
        *,
        key: bytes | str | None = None,
        event_id: str | None = None,
        traceparent: str | None = None,
        headers: Mapping[str, str | bytes] | None = None,
    ) -> str:
        """Send a record in the open transaction, and return its event id.

        Args:
            value: The record: JSON text, or its fields.
            key: The record's key: records of one key keep their order.
            event_id: Its id; by default made of the input and the record's number in it.
            traceparent: W3C trace context; by default made of the input and the event id.
            headers: More headers.
        """
        event_id = event_id or event_id_of(self.input_id, self.sent)
        traceparent = traceparent or traceparent_of(self.input_id, event_id)
        if trace_id_of(traceparent) is None:
            raise InputError(
                f"{traceparent[:80]!r} is no traceparent",
                fix="use the form of W3C Trace Context: 00-<32 hex digits>-<16 hex digits>-01",
            )
        content = orjson.dumps(value) if isinstance(value, Mapping) else value
        if self._open and (self._open >= self._most or self._is_due()):
            self.commit()
        producer = self._began_transaction()
        more = [(name, each) for name, each in (headers or {}).items()]
        self._produce(producer, content, key, [(EVENT_ID, event_id), (TRACEPARENT, traceparent), *more])
        self.sent += 1
        self._open += 1
        return event_id

    def commit(self) -> None:
        """Commit what was sent since the last commit."""
        if not self._open:
            return
        producer = self._began_transaction()
        failpoint(Failpoint.SINK_BEFORE_TARGET_COMMIT, table=self.topic)
        self._asked(lambda: _commit(producer))
        failpoint(Failpoint.SINK_AFTER_TARGET_COMMIT, table=self.topic)
        self._open = 0
        self.transactions += 1

    def commit_if_due(self) -> None:
        """Commit a transaction that has been open for a while: it holds back readers of the topic."""
        if self._open and self._is_due(1.0):
            self.commit()

    def abort(self) -> None:
        """Give up what was sent since the last commit. Never raises."""
        from confluent_kafka import KafkaException

        client, self._client = self._client, None
        if client is not None and self._open:
            client.purge()
            # Where this fails, the next producer of this input aborts it, or its timeout does.
            with suppress(KafkaException):
                client.abort_transaction(10)
        self._open = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.commit()
        finally:
            self.abort()

    def _is_due(self, seconds: float = MAX_TRANSACTION_SECONDS) -> bool:
        return time.monotonic() - self._began > seconds

    def _began_transaction(self) -> Producer:
        if self._client is None:
            self._client = self._asked(self._opened)
        if not self._open:
            self._asked(self._client.begin_transaction)
            self._began = time.monotonic()
        return self._client

    def _opened(self) -> Producer:
        try:
            from confluent_kafka import KafkaException, Producer
        except ImportError as error:
            raise SinkRefused(
                "the package confluent-kafka is missing",
                fix="pip install 'etl-assets[kafka]'",
                sink=self.topic,
            ) from error
        own = {
            "transactional.id": f"etl-assets-produce.{self.topic}.{self.input_id}",
            "enable.idempotence": True,
            "acks": "all",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_SECONDS * 1000,
            "message.timeout.ms": TRANSACTION_TIMEOUT_SECONDS * 1000,
            "linger.ms": 20,
            "compression.type": "lz4",
            "queue.buffering.max.kbytes": 32_768,
            # As Kafka's own clients choose the partition of a key.
            "partitioner": "murmur2_random",
            "error_cb": self._heard,
        }
        client = Producer({**self._options, **own}, logger=silent_logger())
        self._heard.ask(client.init_transactions, _ANSWER_SECONDS, client)
        # A record for a topic that is missing would be an error after half a minute.
        if (
            error := client.list_topics(self.topic, timeout=_ANSWER_SECONDS).topics[self.topic].error
        ) is not None:
            raise KafkaException(error)
        return client

    def _produce(
        self, producer: Producer, value: bytes | str, key: bytes | str | None, headers: list[Any]
    ) -> None:
        deadline = time.monotonic() + 2 * _ANSWER_SECONDS
        while True:
            try:
                self._asked(
                    lambda: producer.produce(
                        self.topic, value, key, headers=headers, on_delivery=self._delivered
                    )
                )
            except BufferError as error:
                if time.monotonic() > deadline:
                    raise SinkUnavailable(
                        f"the topic {self.topic} takes no records ({self._heard.said})",
                        fix="see that the brokers are up and reachable, and send the input again",
                        sink=self.topic,
                    ) from error
                producer.poll(0.01)
            else:
                producer.poll(0)
                return

    def _asked(self, ask: Any) -> Any:
        from confluent_kafka import KafkaException

        try:
            return ask()
        except KafkaException as error:
            # Of records that are not delivered, the commit says only how many there are.
            cause = self._undelivered or error.args[0]
            raise named(cause, f"the topic {self.topic}", self._heard) from error

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        self._undelivered = self._undelivered or error


def _commit(producer: Producer) -> None:
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
