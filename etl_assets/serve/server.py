"""The server process: it listens, warns of a lack of TLS, and ends without losing what it accepted."""

from __future__ import annotations

import logging
import socket

import uvicorn

from etl_assets.errors import AddressUnusable
from etl_assets.serve.app import build_app
from etl_assets.serve.connections import limited_protocol, limited_websocket
from etl_assets.serve.journal import Journal
from etl_assets.serve.service import Service
from etl_assets.settings import Settings
from etl_assets.settings.loopback import is_loopback

logger = logging.getLogger("etl_assets.serve")
_BACKLOG = 512
_KEEP_ALIVE_SECONDS = 30
_WEBSOCKET_MESSAGE_BYTES = 1 << 20


def run_server(settings: Settings, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT. Then answer what was accepted, and return.

    Raises:
        AddressUnusable: the address is in use, or is not this machine's.
    """
    serve = settings.serve
    listening = _listen(host, port)
    if serve.tls_certificate is None and not is_loopback(host):
        logger.warning(
            "tokens and events cross the network readable: set serve.tls_certificate, or put a proxy with"
            " TLS before %s:%d",
            host,
            port,
        )
    placement = settings.placement()
    journal = Journal(placement, timeout_seconds=serve.write_timeout_seconds)
    protocol = limited_protocol(
        header_seconds=serve.header_timeout_seconds,
        answer_seconds=serve.body_timeout_seconds,
        max_connections=serve.max_connections,
    )
    service = Service(settings=settings, journal=journal)
    config = uvicorn.Config(
        build_app(service),
        http=protocol,
        ws="none" if serve.ui is None else limited_websocket(answer_seconds=serve.body_timeout_seconds),
        ws_max_size=_WEBSOCKET_MESSAGE_BYTES,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(serve.body_timeout_seconds + serve.write_timeout_seconds) + 5,
        ssl_certfile=None if serve.tls_certificate is None else settings.home / serve.tls_certificate,
        ssl_keyfile=None if serve.tls_key is None else settings.home / serve.tls_key,
    )
    scheme = "http" if serve.tls_certificate is None else "https"
    logger.info("listening on %s://%s:%d", scheme, host, listening.getsockname()[1])
    _Server(config, service).run(sockets=[listening])


class _Server(uvicorn.Server):
    """Uvicorn's server, whose requests do not wait for a commit once it ends."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let requests end, and return."""
        self._service.watch.close()
        await super().shutdown(sockets)


def _listen(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise AddressUnusable(
            f"nothing can listen on {host}:{port}: {error.strerror or error}",
            fix="choose another address with --host and --port, or in `serve` of the platform file",
            host=host,
            port=port,
        ) from error
    return listening
