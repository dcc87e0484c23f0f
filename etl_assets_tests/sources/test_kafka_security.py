"""Kafka with passwords and certificates: source, sink and producer, by a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import etl_assets
from etl_assets.errors import EtlAssetsError, SinkRefused, SourceRefused
from etl_assets.settings.connections import KafkaConnection
from etl_assets.sinks.kafka.sink import KafkaSink
from etl_assets.sources.kafka import source as kafka_source
from etl_assets.stack.kafka import KafkaServer
from etl_assets.stack.server import HOST, free_port
from etl_assets_tests.reference.certificates import make_certificates
from etl_assets_tests.sources.topics import Topic

SECURE = "SECURE"
PASSWORD, WRONG = "correct-horse-battery", "hunter2-hunter2"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecureServer(KafkaServer):
    """A broker with a second listener that asks for TLS and a password."""

    def __init__(self, folder: Path) -> None:
        self.ca_file, server_file = make_certificates(folder)
        of_listener = f"listener.name.{SECURE.lower()}"
        super().__init__(
            listeners={SECURE: free_port()},
            settings={
                "listener.security.protocol.map": (
                    f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{SECURE}:SASL_SSL"
                ),
                f"{of_listener}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
                f"{of_listener}.plain.sasl.jaas.config": f'{_PLAIN} required user_etl="{PASSWORD}";',
                f"{of_listener}.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
                f"{of_listener}.ssl.keystore.type": "PEM",
                f"{of_listener}.ssl.keystore.location": str(server_file),
            },
        )

    @property
    def secure_address(self) -> str:
        return f"{HOST}:{self.listeners[SECURE]}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    with SecureServer(tmp_path_factory.mktemp("certificates")) as found:
        admin = AdminClient({"bootstrap.servers": found.url})
        credential = UserScramCredentialUpsertion(
            "etl", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
        )
        admin.alter_user_scram_credentials([credential])["etl"].result(30)
        yield found


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_TEST_PASSWORD", PASSWORD)
    monkeypatch.setattr(kafka_source, "ANSWER_SECONDS", 5.0)


def connection(server: SecureServer, **changes: Any) -> dict[str, Any]:
    return {
        "type": "kafka",
        "bootstrap_servers": [server.secure_address],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "user": "etl",
        "password": "${KAFKA_TEST_PASSWORD}",
        "ca_file": str(server.ca_file),
        "write": ["*"],
        **changes,
    }


def secured(server: SecureServer, folder: Path, **changes: Any) -> Topic:
    topic = Topic.create(server.url, folder)
    topic.home.begin(start_date="2026-01-01", connections={"events": connection(server, **changes)})
    return topic


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_source_sink_and_producer_connect_by_password_and_certificate(server, tmp_path, mechanism):
    topic = secured(server, tmp_path, sasl_mechanism=mechanism)
    with etl_assets.produce("events", topic.name, input_id="a", home=topic.home.path) as producer:
        producer.send({"id": "a", "age": 1})
    topic.ingest()
    assert [json.loads(row["record"]) for row in topic.accepted()] == [{"id": "a", "age": 1}]
    assert sink(server, topic, sasl_mechanism=mechanism).position() is None


def sink(server: SecureServer, topic: Topic, **changes: Any) -> KafkaSink:
    options = KafkaConnection(**connection(server, **changes)).client_options()
    return KafkaSink(options, topic.name, pipeline="people", name="people")


def test_a_wrong_password_is_refused_with_the_fix_and_without_the_password(server, tmp_path, monkeypatch):
    topic = secured(server, tmp_path)
    monkeypatch.setenv("KAFKA_TEST_PASSWORD", WRONG)
    expect_refused(server, topic, "password", {})


def test_a_certificate_that_is_not_trusted_is_refused_with_the_fix(server, tmp_path):
    other, _ = make_certificates(tmp_path, "other")
    topic = secured(server, tmp_path, ca_file=str(other))
    expect_refused(server, topic, "ca_file", {"ca_file": str(other)})


def test_a_file_of_certificates_that_is_missing_is_refused(server, tmp_path):
    topic = secured(server, tmp_path, ca_file="/nowhere/ca.pem")
    expect_refused(server, topic, "certificates", {"ca_file": "/nowhere/ca.pem"})


def expect_refused(server: SecureServer, topic: Topic, fix: str, changes: dict[str, Any]) -> None:
    with pytest.raises(SourceRefused) as of_source:
        topic.ingest()
    with pytest.raises(SinkRefused) as of_sink:
        sink(server, topic, **changes).position()
    with pytest.raises(SinkRefused) as of_producer:
        etl_assets.produce("events", topic.name, input_id="a", home=topic.home.path).send({"id": "a"})
    for caught in (of_source, of_sink, of_producer):
        error = caught.value
        assert isinstance(error, EtlAssetsError)
        assert fix in error.fix, error
        for secret in (WRONG, PASSWORD):
            assert secret not in str(error)
