"""The client: one call to a receiver, repeated while the receiver is busy.

Belongs here: connections, timeouts, which answers are final, and how often a call is sent. Does not belong
here: what calls mean (`calls.py`), and which are made (`sink.py`).

The standard library's client: it follows no redirect, asks no proxy, and logs nothing.
"""

from __future__ import annotations

import email.utils
import http.client
import queue
import random
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import urlsplit

from etl_assets.errors import SinkRefused, SinkUnavailable

_BUSY = frozenset({408, 425, 429})
_ANSWER_BYTES = 64 * 1024
_SHOWN = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """How to reach a receiver.

    Attributes:
        url: Its address, without credentials and query.
        headers: Headers of each call.
        secrets: Values that must not be shown, also where the receiver repeats them.
        ca_file: File with the certificates that sign its own; None for those of the system.
        connect_timeout_seconds: To open a connection.
        timeout_seconds: For each part of an answer.
        address_of: Returns the address of a host and port to connect to; None: the host itself.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    ca_file: str | None = None
    connect_timeout_seconds: float = 10.0
    timeout_seconds: float = 30.0
    address_of: Callable[[str, int], str | None] = lambda host, port: None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPatience:
    """How long a busy or silent receiver is waited for within a delivery.

    Attributes:
        attempts: How often a call is sent at most.
        first_delay_seconds: The first pause; each is twice the one before, less a random part.
        max_delay_seconds: The longest pause. A receiver that asks for more is tried by the next step.
    """

    attempts: int = 4
    first_delay_seconds: float = 0.5
    max_delay_seconds: float = 10.0

    def delay(self, attempt: int, dice: random.Random) -> float:
        """Return the pause after an attempt, counted from 0."""
        return min(self.max_delay_seconds, self.first_delay_seconds * 2**attempt) * dice.uniform(0.5, 1)


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """A final answer: done, or refused for ever.

    Attributes:
        status: The status.
        error: The status and the receiver's words, without secrets; empty if the call was done.
    """

    status: int
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the call was done."""
        return 200 <= self.status < 300


class WebhookClient:
    """Connections to one receiver, for several threads. Nothing is sent before the first call."""

    def __init__(
        self,
        receiver: Receiver,
        *,
        sink: str,
        patience: CallPatience | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        dice: random.Random | None = None,
    ) -> None:
        self.sink = sink
        self._receiver = receiver
        self._patience = patience or CallPatience()
        self._sleep = sleep
        self._monotonic = monotonic
        self._open_at = 0.0
        self._dice = dice or random.Random()
        self._address = urlsplit(receiver.url)
        self._idle: queue.LifoQueue[http.client.HTTPConnection] = queue.LifoQueue()
        self._context = (
            ssl.create_default_context(cafile=receiver.ca_file) if self._address.scheme == "https" else None
        )

    def call(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Callable[[], Mapping[str, str]],
        *,
        may_send: Callable[[], bool] = lambda: True,
    ) -> CallAnswer | None:
        """Make a call until there is a final answer.

        Args:
            method: HTTP method.
            path: Path below the receiver's address.
            body: The body, JSON.
            headers: Returns further headers at each attempt.
            may_send: Asked before each attempt.

        Returns:
            The answer; None if `may_send` said no.

        Raises:
            SinkUnavailable: no answer, or the receiver is busy or has failed.
            SinkRefused: the credentials or the certificate are not accepted, or it answers with a redirect.
        """
        why, wait = "", 0.0
        for attempt in range(self._patience.attempts):
            if attempt:
                wait = max(wait, self._patience.delay(attempt - 1, self._dice))
                if wait > self._patience.max_delay_seconds:
                    break
                self._sleep(wait)
            if (pause := self._open_at - self._monotonic()) > 0:
                self._sleep(pause)
            if not may_send():
                return None
            answer, why, wait = self._once(method, path, body, headers())
            if answer is not None:
                return answer
        asked = f"; it asks to wait for {wait:,.0f} s" if wait > self._patience.max_delay_seconds else ""
        raise SinkUnavailable(
            f"{self.sink} does not take calls now: {why}{asked}",
            fix="see whether the receiver runs; the delivery goes on where it stopped",
            sink=self.sink,
        )

    def close(self) -> None:
        """Close the connections."""
        while not self._idle.empty():
            self._idle.get_nowait().close()

    def reach(self) -> None:
        """Connect to the receiver without a call.

        Raises:
            SettingsError: its host is not allowed.
            OSError: it is not reached, or its certificate is not trusted.
        """
        connection = self._connection()
        try:
            connection.connect()
        finally:
            connection.close()

    def _once(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[CallAnswer | None, str, float]:
        """Return a final answer; or none, with the reason and how long the receiver asks to wait."""
        connection = self._connection()
        try:
            target = f"{self._address.path.rstrip('/')}/{path}"
            sent = {**self._receiver.headers, "Content-Type": "application/json", **headers}
            connection.request(method, target, body=body, headers=sent)
            response = connection.getresponse()
            text = self._body(response)
            answer = response.status, response.getheader("Retry-After"), self._words(response.status, text)
            is_reusable = response.isclosed()
        except ssl.SSLCertVerificationError as error:
            connection.close()
            self._refused(
                f"no trusted TLS connection ({error.verify_message})", fix="check `ca_file` of the connection"
            )
        except TimeoutError:
            connection.close()
            return None, f"no answer within {self._receiver.timeout_seconds:g} s", 0.0
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return None, type(error).__name__, 0.0
        if is_reusable:
            self._idle.put(connection)
        else:
            connection.close()
        return self._judged(*answer)

    def _judged(
        self, status: int, retry_after: str | None, words: str
    ) -> tuple[CallAnswer | None, str, float]:
        if 200 <= status < 300:
            return CallAnswer(status), "", 0.0
        if status in _BUSY or status >= 500:
            wait = seconds_of(retry_after, time.time())
            if wait <= self._patience.max_delay_seconds:
                self._open_at = self._monotonic() + wait  # for calls of other threads too
            return None, words, wait
        if status in (401, 407):
            self._refused(
                f"not allowed: {words}", fix="correct `headers` or `signing_secret` of the connection"
            )
        if status < 400:
            self._refused(
                f"it answers {status}, a redirect or no answer to a call, and redirects are not followed",
                fix="correct `url` of the connection, or the path of the sink",
            )
        return CallAnswer(status, words), "", 0.0

    def _connection(self) -> http.client.HTTPConnection:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            pass
        host, port = self._address.hostname or "", self._address.port
        if self._context is None:
            return _Connection(host, port, self._receiver)
        return _TlsConnection(host, port, self._receiver, self._context)

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        """Return the beginning of an answer's body; a receiver may send it slowly, and without an end."""
        deadline, body = self._monotonic() + self._receiver.timeout_seconds, b""
        while len(body) < _ANSWER_BYTES and self._monotonic() < deadline:
            if not (piece := response.read1(_ANSWER_BYTES)):
                break
            body += piece
        return body

    def _words(self, status: int, body: bytes) -> str:
        """Return the status and the receiver's words. It may repeat what it was sent."""
        text = " ".join(body.decode("utf-8", errors="replace").split())
        for secret in sorted(self._receiver.secrets, key=len, reverse=True):
            text = text.replace(secret, "…")
        shown = "".join(each for each in text if each.isprintable())[:_SHOWN]
        reason = http.client.responses.get(status, "")
        return f"{status} {reason}".strip() + (f": {shown}" if shown else "")

    def _refused(self, why: str, *, fix: str) -> NoReturn:
        raise SinkRefused(f"{self.sink}: {why}", fix=fix, sink=self.sink)


class _Connection(http.client.HTTPConnection):
    """A connection with a time limit to open it, another for answers, and an address that was checked."""

    def __init__(self, host: str, port: int | None, receiver: Receiver) -> None:
        super().__init__(host, port, timeout=receiver.connect_timeout_seconds)
        self._receiver = receiver

    def connect(self) -> None:
        self.sock = _opened(self, self._receiver)
        self.sock.settimeout(self._receiver.timeout_seconds)


class _TlsConnection(http.client.HTTPSConnection):
    """The same over TLS."""

    def __init__(self, host: str, port: int | None, receiver: Receiver, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=receiver.connect_timeout_seconds, context=context)
        self._receiver, self._tls = receiver, context

    def connect(self) -> None:
        sock = _opened(self, self._receiver)
        try:
            self.sock = self._tls.wrap_socket(sock, server_hostname=self.host)
        except BaseException:
            sock.close()
            raise
        self.sock.settimeout(self._receiver.timeout_seconds)


def _opened(connection: http.client.HTTPConnection, receiver: Receiver) -> socket.socket:
    """Return the socket of a connection: to the address that was checked, if the receiver's are."""
    address = receiver.address_of(connection.host, connection.port) or connection.host
    found = socket.create_connection((address, connection.port), receiver.connect_timeout_seconds)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def seconds_of(retry_after: str | None, now: float) -> float:
    """Return how many seconds a header `Retry-After` asks to wait: it has a number or a time; 0 for none."""
    if retry_after is None:
        return 0.0
    if retry_after.strip().isdigit():
        return min(float(retry_after), 86_400.0)
    try:
        return min(max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - now), 86_400.0)
    except (ValueError, OverflowError):
        return 0.0
