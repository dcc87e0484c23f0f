"""The client: one request to a search engine, repeated while the engine is busy.

Belongs here: the connection, its errors, and how often a request is sent. Does not belong here: what requests
mean (`index.py`, `bulk.py`).

opensearch-py's connection without its client above: bodies are bytes that are ready to send, and statuses
decide. The client's own retries have no backoff, and its log would hold rows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import urlsplit

import orjson

from etl_assets.errors import RuntimeMissing, SettingsError, SinkRefused, SinkUnavailable
from etl_assets.settings.connections import SEARCH_PORT

_BUSY = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchServer:
    """How to reach an engine.

    Attributes:
        urls: `http://host:9200` or `https://…` of its nodes, without credentials.
        user: Name for HTTP basic authentication.
        password: Its password.
        ca_file: File with the certificates that sign the server's; None for those of the system.
        address_of: Returns the address of a host and port to connect to; None: the host itself.
    """

    urls: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    address_of: Callable[[str, int], str | None] = lambda host, port: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a busy or silent engine is waited for.

    Attributes:
        attempts: How often a request is sent at most.
        first_delay_seconds: The first pause; each is twice the one before, less a random part.
        max_delay_seconds: The longest pause.
        timeout_seconds: How long an answer may take. A request that took longer is not repeated here.
    """

    attempts: int = 6
    first_delay_seconds: float = 0.25
    max_delay_seconds: float = 8.0
    timeout_seconds: float = 60.0

    def delay(self, attempt: int, dice: random.Random) -> float:
        """Return the pause after an attempt, counted from 0."""
        return min(self.max_delay_seconds, self.first_delay_seconds * 2**attempt) * dice.uniform(0.5, 1)


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """An answer other than "busy" and "not allowed"."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        """Whether the request was done."""
        return self.status < 300

    @property
    def error(self) -> str:
        """The engine's words."""
        return error_text(self.body.get("error") if isinstance(self.body, dict) else None)


def error_text(error: object) -> str:
    """Return the type, reason and cause of an error as the engine gives it."""
    if not isinstance(error, dict):
        return str(error or "no reason given")
    cause = error.get("caused_by")
    text = f"{error.get('type')}: {error.get('reason')}"
    return f"{text}; {error_text(cause)}" if isinstance(cause, dict) else text


class SearchClient:
    """A connection to one engine. Nothing is sent before the first request."""

    def __init__(
        self,
        server: SearchServer,
        *,
        sink: str,
        patience: Patience | None = None,
        sleep: Callable[[float], None] = time.sleep,
        dice: random.Random | None = None,
    ) -> None:
        self.sink = sink
        self.patience = patience or Patience()
        self.dice = dice or random.Random()
        self.sleep = sleep
        self._connections = [_connection(server, url, self.patience.timeout_seconds) for url in server.urls]
        self._failures = 0

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, str] | None = None,
    ) -> EngineAnswer:
        """Send a request until it is answered.

        Args:
            method: HTTP method.
            path: Path below the server's URL.
            body: Bytes for a bulk request, otherwise what becomes JSON.
            params: Parameters of the query.

        Raises:
            SinkUnavailable: no answer, or the engine is busy, has failed or is blocked.
            SinkRefused: the credentials or the certificate are not accepted.
        """
        content = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        kind = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
        why = ""
        for attempt in range(self.patience.attempts):
            if attempt:
                self.sleep(self.patience.delay(attempt - 1, self.dice))
            answer, why = self._once(method, path, params, content, kind)
            if answer is not None:
                return answer
        self.unavailable(why)

    def unavailable(self, why: str) -> NoReturn:
        """Report that the engine does not do it now."""
        raise SinkUnavailable(
            f"{self.sink} does not answer: {why}",
            fix="see whether the engine runs and has room; the delivery is repeated",
            sink=self.sink,
        )

    def refused(self, why: str, *, fix: str) -> NoReturn:
        """Report that the engine will never do it."""
        raise SinkRefused(f"{self.sink}: {why}", fix=fix, sink=self.sink)

    def close(self) -> None:
        """Close the connection."""
        for connection in self._connections:
            connection.close()

    def _once(
        self, method: str, path: str, params: Mapping[str, str] | None, content: bytes | None, kind: str
    ) -> tuple[EngineAnswer | None, str]:
        from opensearchpy import exceptions

        connection = self._connections[self._failures % len(self._connections)]
        try:
            status, _, text = connection.perform_request(
                method, path, params, content, ignore=range(300, 600), headers={"content-type": kind}
            )
        except exceptions.ConnectionTimeout:
            self.unavailable(f"no answer within {self.patience.timeout_seconds:g} s")
        except exceptions.SSLError as error:
            self.refused(
                f"no trusted TLS connection ({type(error.info).__name__})",
                fix="check `ca_file` of the connection",
            )
        except exceptions.ConnectionError as error:
            if isinstance(error.info, SettingsError):
                raise error.info from None  # the address is not allowed, whichever node is asked
            self._failures += 1  # another node, if there is one
            return None, f"{type(error.info).__name__}"
        try:
            answer = EngineAnswer(status, orjson.loads(text) if text else None)
        except orjson.JSONDecodeError:
            answer = EngineAnswer(status, None)
        if status in (401, 403) and "cluster_block" not in answer.error:
            self.refused(
                f"not allowed ({status}): {answer.error}",
                fix="give the connection's user the privileges that docs/sinks.md lists",
            )
        if status in _BUSY or status >= 500 or status == 403:
            return None, f"{status}: {answer.error}"
        return answer, ""


def _connection(server: SearchServer, url: str, timeout: float) -> Any:
    try:
        from opensearchpy import Urllib3HttpConnection
    except ImportError as error:
        raise RuntimeMissing(
            "the search sink needs the package opensearch-py", fix="pip install 'etl-assets[search]'"
        ) from error

    class Connection(Urllib3HttpConnection):
        """Logs nothing: bodies are rows."""

        def log_request_success(self, *_: object, **__: object) -> None: ...

        def log_request_fail(self, *_: object, **__: object) -> None: ...

    parts = urlsplit(url)
    secure = parts.scheme == "https"
    host, port = parts.hostname or "localhost", parts.port or (443 if secure else SEARCH_PORT)
    made = Connection(
        host=host,
        port=port,
        url_prefix=parts.path.strip("/"),
        use_ssl=secure,
        http_auth=(server.user, server.password or "") if server.user else None,
        timeout=timeout,
        ca_certs=server.ca_file if secure else None,
    )
    pool: Any = made.pool
    pool.ConnectionCls = _to_checked_address(pool.ConnectionCls, server, host, port)
    return made


def _to_checked_address(base: Any, server: SearchServer, host: str, port: int) -> Any:
    """Return the class of connections that go to the address that was checked."""

    class CheckedConnection(base):
        """The name stays what TLS and the header `Host` have."""

        def _new_conn(self) -> Any:
            if (address := server.address_of(host, port)) is not None:
                self._dns_host = address
            return super()._new_conn()

    return CheckedConnection
