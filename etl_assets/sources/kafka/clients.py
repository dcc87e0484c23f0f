"""The clients of one open source: a consumer and an administrator, made when they are first asked for.

Belongs here: making and closing clients, and their errors as those of a source. Does not belong here: what
they are asked (`source.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from etl_assets.errors import SourceRefused, SourceUnavailable
from etl_assets.sources.kafka.client_errors import error_of, silent, silent_logger
from etl_assets.sources.kafka.heard import Heard

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient, ClusterMetadata

_OPTIONS = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "queued.max.messages.kbytes": 32_768,
    # A full queue is looked at again after this time, by default a second: it is long empty then.
    "fetch.queue.backoff.ms": 10,
    "fetch.message.max.bytes": 4 << 20,
}
_LOOK_OPTIONS = {"queued.max.messages.kbytes": 64, "fetch.message.max.bytes": 16 << 10}
"""A look at the lag takes the first record of each partition: little is fetched ahead."""


class SourceClients:
    """The clients.

    Args:
        options: Options of Kafka's clients: brokers and security.
        topic: The topic, for messages.
        name: Name by which brokers know the clients.
    """

    def __init__(self, options: Mapping[str, Any], topic: str, name: str) -> None:
        self._options, self._topic, self._name = options, topic, name
        self._made: Consumer | None = None
        self._made_admin: AdminClient | None = None
        self._only_looks = False
        self._heard = Heard()

    def begin_look(self) -> None:
        """Let the consumer fetch little, if there is none yet."""
        self._only_looks = self._only_looks or self._made is None

    def end_look(self) -> None:
        """Close a consumer that was made for a look: reading with it would be slow."""
        if self._only_looks and self._made is not None:
            self._made.close()
            self._made = None
        self._only_looks = False

    def consumer(self) -> Consumer:
        """Return the consumer.

        Raises:
            SourceRefused: the package is missing, or an option is wrong.
        """
        if self._made is None:
            try:
                from confluent_kafka import Consumer
            except ImportError as error:
                raise SourceRefused(
                    "the package confluent-kafka is missing",
                    fix="pip install 'etl-assets[kafka]'",
                    source=self._topic,
                ) from error
            own = {"group.id": self._name, "client.id": self._name, "error_cb": self._heard}
            limits = _LOOK_OPTIONS if self._only_looks else {}
            options = {**self._options, **_OPTIONS, **limits, **own}
            self._made = self.answer(lambda: Consumer(options, logger=silent_logger()))
        return self._made

    def admin(self) -> AdminClient:
        """Return the administrator, which is kept: one that is let go of answers nothing."""
        from confluent_kafka.admin import AdminClient

        if self._made_admin is None:
            own: dict[str, Any] = {"error_cb": self._heard, "logger": silent_logger()}
            options: dict[str, Any] = {**self._options, **own}
            self._made_admin = self.answer(lambda: AdminClient(options))
        return self._made_admin

    def metadata(self, seconds: float) -> ClusterMetadata:
        """Return what the brokers say of the topic; asked in turns, so that a refused password ends it early.

        Raises:
            SourceRefused: the brokers do not let the client in.
            SourceUnavailable: they do not answer within the seconds.
        """
        consumer = self.consumer()
        return self.answer(
            lambda: self._heard.ask(
                lambda turn: consumer.list_topics(self._topic, timeout=turn), seconds, consumer
            )
        )

    def close(self) -> None:
        """Close the clients."""
        if self._made is not None:
            self._made.close()
        self._made = self._made_admin = None

    def answer(self, ask: Callable[[], Any]) -> Any:
        """Return what a call returns; an error of a client is one of the source."""
        from confluent_kafka import KafkaException

        try:
            return ask()
        except KafkaException as error:
            raise self.error(error) from error

    def error(self, error: Any) -> SourceRefused | SourceUnavailable:
        """Return the error for a `KafkaException`."""
        self._heard.listen(self._made, self._made_admin)
        return error_of(error.args[0], self._topic, self._heard)

    def silent(self) -> SourceRefused | SourceUnavailable:
        """Return the error for brokers that send nothing."""
        self._heard.listen(self._made, self._made_admin)
        return silent(self._topic, "no record came", self._heard)
