"""A folder that really hangs: a FUSE file system without a server, mounted over it.

Every operation on a path below blocks in the kernel, as on a hard NFS mount whose server is lost. The
folder's own content reappears when the mount is removed. Needs Linux and the right to mount.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_DETACH = 2


class HangingMount:
    """A hanging mount over a folder.

    Raises:
        OSError: this process may not mount here.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.fsencode(root)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self._device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
        if self._libc.mount(b"hanging", self._root, b"fuse", 0, options.encode()) != 0:
            os.close(self._device)
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def end(self) -> None:
        """Let hanging operations fail, and unmount, so that the previous content reappears."""
        os.close(self._device)
        self._libc.umount2(self._root, _DETACH)


@contextmanager
def hanging(root: Path) -> Generator[None]:
    """Make a folder hang until the end of the block."""
    mount = HangingMount(root)
    try:
        yield
    finally:
        mount.end()
