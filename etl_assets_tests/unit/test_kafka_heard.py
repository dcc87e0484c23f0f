"""Calls to a Kafka client in turns, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from etl_assets.sources.kafka.heard import Heard

CLIENT: Any = SimpleNamespace(poll=lambda seconds: None)


def test_brokers_that_need_longer_than_a_turn_answer_in_a_later_one():
    turns: list[float] = []

    def call(seconds: float) -> str:
        turns.append(round(seconds))
        if seconds < 5:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return "answer"

    assert Heard().ask(call, 60, CLIENT) == "answer"
    assert turns == [2, 4, 8]


def test_a_refusal_ends_it_at_once():
    heard, turns = Heard(), []

    def call(seconds: float) -> str:
        turns.append(seconds)
        heard(KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: wrong password"))
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    with pytest.raises(KafkaException):
        heard.ask(call, 60, CLIENT)
    assert len(turns) == 1
