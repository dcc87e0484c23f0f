"""What every server has: a life on one folder and one port, and ways to end or to stop it for a while.

Belongs here: the interface, and what is the same for all: the port, the log's last lines. Does not belong
here: any server's settings.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Protocol

from etl_assets.errors import AddressUnusable

HOST = "127.0.0.1"
_LAST_BYTES = 64 * 1024
_LAST_LINES = 20


class Server(Protocol):
    """One server on one folder and one port.

    `start` after `stop` or `kill` brings it back on the same port, with its data if it keeps any. Used in a
    `with` statement, it is started, and ended by `close` in the end.
    """

    name: str
    port: int
    log: Path

    @property
    def address(self) -> str:
        """Host and port."""
        ...

    @property
    def url(self) -> str:
        """What a client is configured with. May hold a password."""
        ...

    def start(self) -> None:
        """Start it and return when it answers.

        Raises:
            RuntimeMissing: this machine lacks its binaries; the fix names the package.
            AddressUnusable: another program has its port.
            ServerNotStarted: it ended or did not answer in time; holds the log's last lines.
        """
        ...

    def stop(self) -> None:
        """End it as an operator does: it may finish and write what it has to."""
        ...

    def kill(self) -> None:
        """End it, with all its processes, as a power cut of its machine would."""
        ...

    def pause(self) -> None:
        """Stop it in the middle of whatever it does: connections stay, and nothing is answered."""
        ...

    def resume(self) -> None:
        """Continue after `pause`: what it was sent meanwhile is done now."""
        ...

    def close(self) -> None:
        """End it for good, and remove its folder if it was a temporary one."""
        ...


def free_port() -> int:
    """Return a port of the loopback interface that nothing listens on now."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def expect_free(name: str, port: int) -> None:
    """Check that a server can listen on a port.

    Raises:
        AddressUnusable: it is in use, or may not be used.
    """
    try:
        with socket.socket() as listener:
            # As servers do: a recently used port counts as free.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((HOST, port))
            listener.listen(1)
    except (OSError, OverflowError) as error:
        raise AddressUnusable(
            f"{name} cannot listen on port {port} of {HOST}: {getattr(error, 'strerror', None) or error}",
            fix=f"end what uses it (`ss -ltnp sport = :{port}` shows it), or choose another port",
            host=HOST,
            port=port,
        ) from error


def last_lines(log: Path, since_bytes: int = 0) -> str:
    """Return the last lines of a log, from a position on."""
    try:
        with log.open("rb") as content:
            end = content.seek(0, 2)
            content.seek(max(since_bytes, end - _LAST_BYTES))
            lines = content.read().decode("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return "(there is no log)"
    return "\n".join(lines[-_LAST_LINES:]) or "(the log is empty)"
