"""Fatal errors of a Kafka client: calls after one say only that there was one."""

from __future__ import annotations

import pytest

from etl_assets.errors import SinkFenced, SinkUnavailable
from etl_assets.sinks.kafka.client import named
from etl_assets.sources.kafka.heard import Heard

confluent_kafka = pytest.importorskip("confluent_kafka")
KafkaError = confluent_kafka.KafkaError


def test_a_call_after_a_fatal_error_has_its_reason():
    heard = Heard()
    heard(KafkaError(KafkaError._TRANSPORT, "down"))
    assert isinstance(named(KafkaError(KafkaError._FATAL), "films", heard), SinkUnavailable)
    heard(KafkaError(KafkaError._FENCED, "a newer producer", fatal=True))
    assert isinstance(named(KafkaError(KafkaError._FATAL), "films", heard), SinkFenced)
