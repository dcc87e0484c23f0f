"""What a Kafka client reports beside its answers: a wrong password is only a timeout to the call that waits.

Belongs here: telling what an operator must change from what passes. Does not belong here: errors of sources
and sinks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

Answer = TypeVar("Answer")
_FRESH_SECONDS = 60.0
_POLLS = 10
_TURN_SECONDS = 2.0
"""A client reports a refused password or certificate long before a call to it gives up."""
_PASSING = ("transport failure", "disconnected", "timed out", "connection reset", "eof")
"""Words of a report that a broker went away in the middle of a handshake."""


class Heard:
    """The last report of a client, and the last one that says what an operator must change."""

    def __init__(self) -> None:
        self.said = ""
        self.fatal = ""
        self._refusal: tuple[float, str, str] | None = None

    def __call__(self, error: KafkaError) -> None:
        """Take a report: the client's `error_cb`."""
        self.said = str(error)
        if error.fatal():
            self.fatal = error.name()  # calls after it fail with `_FATAL`, which does not say why
        if fix := fix_of(error):
            self._refusal = time.monotonic(), error.str(), fix

    def listen(self, *clients: Any) -> None:
        """Take what clients have to report: they call back only while they are polled.

        Args:
            clients: Clients, or None. A message of a consumer is dropped: call this when reading has failed.
        """
        for client in clients:
            for _ in range(_POLLS if client is not None else 0):
                client.poll(0.01)

    def ask(self, call: Callable[[float], Answer], seconds: float, client: Any) -> Answer:
        """Return the answer of a call that takes a timeout and may be repeated, made in turns.

        Each turn is twice as long as the one before, so that slow brokers answer too. It ends at once when
        the client reports what an operator must change: to the call itself that is a timeout like any other.

        Args:
            call: The call, given its timeout in seconds.
            seconds: How long to wait in all.
            client: The client that the call is made to.

        Raises:
            KafkaException: of the last turn.
        """
        from confluent_kafka import KafkaException

        deadline, turn = time.monotonic() + seconds, _TURN_SECONDS
        while True:
            try:
                return call(max(0.1, min(turn, deadline - time.monotonic())))
            except KafkaException as error:
                self.listen(client)
                if self.refusal or not _is_silence(error.args[0]) or time.monotonic() >= deadline:
                    raise
                turn *= 2

    @property
    def refusal(self) -> tuple[str, str] | None:
        """What is wrong and its fix, if the client reported such a thing a short while ago."""
        if self._refusal is None or time.monotonic() - self._refusal[0] > _FRESH_SECONDS:
            return None
        return self._refusal[1], self._refusal[2]


def _is_silence(error: KafkaError) -> bool:
    """Return whether a call may be answered if it is made again."""
    from confluent_kafka import KafkaError

    return error.retriable() or error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)


def fix_of(error: KafkaError) -> str | None:
    """Return what an operator must change in a connection; None if the error may pass."""
    from confluent_kafka import KafkaError

    text = error.str().lower()
    match error.code():
        case KafkaError._AUTHENTICATION | KafkaError.SASL_AUTHENTICATION_FAILED:
            if any(words in text for words in _PASSING):
                return None
            return "correct the connection's user or sasl_mechanism, or the variable that its password names"
        case KafkaError.UNSUPPORTED_SASL_MECHANISM:
            return "let the connection's sasl_mechanism be one of the brokers'"
        case KafkaError._SSL:
            if "certificate" not in text:
                return None
            return "set the connection's ca_file to the certificates that sign the brokers', by their names"
        case KafkaError._INVALID_ARG:
            return "correct the connection's options, such as the paths of its certificates"
    return None
