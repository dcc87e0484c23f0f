"""Roots that really hang, until the end of a block: a folder, and a server that takes connections and never
answers.
"""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from etl_assets.testing.hanging_mount import HangingMount


@contextmanager
def hanging_mount(root: Path) -> Generator[None]:
    """Let a root hang; skips the test where nothing may be mounted."""
    try:
        mount = HangingMount(root)
    except OSError as error:
        pytest.skip(f"this user cannot mount a file system: {error.strerror}")
    try:
        yield
    finally:
        mount.end()


@contextmanager
def silent_server() -> Generator[str]:
    """The address of a server that takes connections and never says anything."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as server:
        connections: list[socket.socket] = []
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                connections.append(server.accept()[0])
        for connection in connections:
            connection.close()
