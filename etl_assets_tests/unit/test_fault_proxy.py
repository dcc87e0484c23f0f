"""The network that tests let fail does fail, and otherwise changes nothing."""

from __future__ import annotations

import random
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from etl_assets_tests.reference.fault_proxy import Fault, FaultProxy

QUESTION = b"question " * 20_000


class Answering(socketserver.BaseRequestHandler):
    """Answers with as many bytes as were asked, and notes them."""

    heard = 0

    def handle(self) -> None:
        while piece := self.request.recv(65536):
            type(self).heard += len(piece)
            self.request.sendall(piece.upper())


@pytest.fixture
def network() -> Iterator[FaultProxy]:
    Answering.heard = 0
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        proxy = FaultProxy(server.server_address[1], random.Random(0))
        yield proxy
        proxy.close()
        server.shutdown()


def asked(network: FaultProxy, question: bytes = QUESTION) -> bytes:
    """What came back until the connection ended or nothing more was due."""
    answer = b""
    with socket.create_connection(("127.0.0.1", network.port), timeout=2) as connection:
        threading.Thread(target=_sent, args=(connection, question), daemon=True).start()
        with suppress(ConnectionError):
            while len(answer) < len(question) and (piece := connection.recv(65536)):
                answer += piece
    return answer


def _sent(connection: socket.socket, question: bytes) -> None:
    with suppress(OSError):
        connection.sendall(question)


def test_without_a_fault_everything_arrives(network):
    assert asked(network) == QUESTION.upper()
    with network.fault(Fault.CUT):
        pass
    assert asked(network) == QUESTION.upper()


def test_a_connection_that_is_refused_or_cut_brings_no_whole_answer(network):
    with network.fault(Fault.REFUSED):
        assert asked(network) == b""
        assert Answering.heard == 0
    with network.fault(Fault.CUT):
        assert len(asked(network)) < len(QUESTION)


def test_an_answer_is_lost_after_the_request_was_heard(network):
    with network.fault(Fault.ANSWERS_LOST):
        assert asked(network, b"write this") == b""
        assert Answering.heard == len(b"write this")


def test_a_silent_network_answers_nothing(network):
    with network.fault(Fault.SILENT), pytest.raises(TimeoutError):
        asked(network)


def test_a_silent_network_delivers_once_it_is_back(network):
    with socket.create_connection(("127.0.0.1", network.port), timeout=5) as connection:
        with network.fault(Fault.SILENT):
            connection.sendall(b"later")
            time.sleep(0.3)
            assert Answering.heard == 0
        assert connection.recv(100) == b"LATER"


def test_a_slow_network_takes_its_time(network):
    began = time.monotonic()
    with network.fault(Fault.SLOW):
        assert asked(network, b"slowly") == b"SLOWLY"
    assert time.monotonic() - began > 0.1
