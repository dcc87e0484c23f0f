"""Roots that really hang: a mount whose server never answers, a server that takes connections and never answers.

The mount is a FUSE file system that nobody serves, put over the root: every operation on a path below blocks in the kernel,
as on a hard NFS mount whose server is gone, and what lay there is back when it is taken away. It needs the right to mount;
`domain_watch` has named pipes that hang for everybody else.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


class HangingMount:
    """A mount over a folder, to be taken away again."""

    def __init__(self, root: Path) -> None:
        self._root = os.fsencode(root)
        self._device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self._device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
        if _libc.mount(b"hanging", self._root, b"fuse", 0, options.encode()) != 0:
            os.close(self._device)
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def end(self) -> None:
        """Let what hangs fail, and show what lay there before."""
        os.close(self._device)
        _libc.umount2(self._root, _DETACH)


@contextmanager
def hanging_mount(root: Path) -> Generator[None]:
    """Let a root hang until the end of the block; skips the test where nothing may be mounted."""
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
