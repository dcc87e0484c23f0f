"""Kafka as the project starts it."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from etl_assets.errors import AddressUnusable
from etl_assets.processes import is_there
from etl_assets.stack.kafka import KafkaServer

TOPIC = "orders"


@pytest.fixture(scope="module")
def server():
    with KafkaServer() as server:
        pid = server.pid
        admin = AdminClient({"bootstrap.servers": server.url})
        admin.create_topics([NewTopic(TOPIC, num_partitions=1)])[TOPIC].result(60)
        yield server
    assert not is_there(pid)
    assert not server.folder.exists()


def test_a_transaction_that_is_not_committed_is_not_read_also_after_a_kill(server):
    producer = Producer({"bootstrap.servers": server.url, "transactional.id": "tests"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(TOPIC, b"committed")
    producer.commit_transaction(60)
    producer.begin_transaction()
    producer.produce(TOPIC, b"aborted")
    producer.flush(60)
    producer.abort_transaction(60)
    assert read(server) == [b"committed"]
    server.kill()
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": server.url, "log_level": 0}).list_topics(timeout=1)
    server.start()
    assert read(server) == [b"committed"]


def test_a_used_port_is_named(server):
    with pytest.raises(AddressUnusable, match=f"Kafka cannot listen on port {server.port}"):
        KafkaServer(port=server.port).__enter__()


def read(server):
    settings = {"bootstrap.servers": server.url, "group.id": "tests", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        values = []
        for _ in range(60):
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                values.append(message.value())
            elif message is not None:
                return values
        raise AssertionError("the end of the topic was not reached")
    finally:
        consumer.close()
