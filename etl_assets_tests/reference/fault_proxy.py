"""A network that fails: a port that carries connections to a server of this machine as badly as it is told
to.
"""

from __future__ import annotations

import random
import selectors
import socket
import socketserver
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from enum import StrEnum

_CHUNK_BYTES = 64 * 1024
_LOOK_SECONDS = 0.05


class Fault(StrEnum):
    """What is wrong with the network.

    REFUSED: connections end at once, those under way too, as if nobody listened.
    SILENT: nothing arrives, and nobody says so. What was under way goes on once the fault is over.
    SLOW: every piece takes its time.
    ANSWERS_LOST: requests arrive and are carried out; the connection ends before the answer.
    CUT: connections end in the middle of a request or an answer.
    """

    REFUSED = "refused"
    SILENT = "silent"
    SLOW = "slow"
    ANSWERS_LOST = "answers lost"
    CUT = "cut"


class FaultProxy:
    """A port in front of another. Without a fault it changes nothing."""

    def __init__(self, upstream: int, dice: random.Random) -> None:
        """Listen on a free port.

        Args:
            upstream: Port of the server.
            dice: Says how slow a piece is, and which connection is cut.
        """
        self._upstream = upstream
        self._dice = dice
        self._fault: Fault | None = None
        carry = self._carry

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):  # an end hung up; so does the other one
                    carry(self.request)

        class Listener(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 64

        self._listener = Listener(("127.0.0.1", 0), Connection)
        threading.Thread(target=self._listener.serve_forever, args=(_LOOK_SECONDS,), daemon=True).start()

    @property
    def port(self) -> int:
        return self._listener.server_address[1]

    @contextmanager
    def fault(self, fault: Fault) -> Generator[None]:
        """The network fails in one way until the block ends."""
        self._fault = fault
        try:
            yield
        finally:
            self._fault = None

    def close(self) -> None:
        """End all connections, and listen no more."""
        self._fault = Fault.REFUSED
        self._listener.shutdown()
        self._listener.server_close()

    def _carry(self, client: socket.socket) -> None:
        if self._fault is Fault.REFUSED:
            return
        with (
            socket.create_connection(("127.0.0.1", self._upstream)) as server,
            selectors.DefaultSelector() as ends,
        ):
            ends.register(client, selectors.EVENT_READ, server)
            ends.register(server, selectors.EVENT_READ, client)
            while self._fault is not Fault.REFUSED:
                ready = ends.select(_LOOK_SECONDS)
                if self._fault is Fault.SILENT:
                    time.sleep(_LOOK_SECONDS)
                    continue
                for end, _ in ready:
                    assert isinstance(end.fileobj, socket.socket)
                    if not self._carried(end.fileobj, end.data, is_answer=end.fileobj is server):
                        return

    def _carried(self, source: socket.socket, target: socket.socket, *, is_answer: bool) -> bool:
        """Carry one piece; False: the connection is at its end."""
        piece = source.recv(_CHUNK_BYTES)
        if not piece or (is_answer and self._fault is Fault.ANSWERS_LOST):
            return False
        if self._fault is Fault.CUT and self._dice.random() < 0.5:
            target.sendall(piece[: len(piece) // 2])
            return False
        if self._fault is Fault.SLOW:
            time.sleep(self._dice.uniform(0.05, 0.3))
        target.sendall(piece)
        return True
