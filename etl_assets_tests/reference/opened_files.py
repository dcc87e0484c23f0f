"""The files in some folders that any process opens, as the kernel reports them."""

from __future__ import annotations

import ctypes
import os
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

_IN_OPEN = 0x20
_EVENT = struct.Struct("iIII")


class OpenedFiles:
    """Watches folders, not those below them; `seen` counts how often each file was opened."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._descriptor >= 0, os.strerror(ctypes.get_errno())
        self._folders = {self._watch(folder): folder for folder in folders}

    def __enter__(self) -> Self:
        self.seen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def seen(self) -> Counter[Path]:
        """The files opened since the last call."""
        found: Counter[Path] = Counter()
        while True:
            try:
                content = os.read(self._descriptor, 1 << 20)
            except BlockingIOError:
                return found
            at = 0
            while at < len(content):
                watch, _, _, length = _EVENT.unpack_from(content, at)
                at += _EVENT.size + length
                name = content[at - length : at].rstrip(b"\0").decode()
                assert watch >= 0, "more files were opened than the kernel keeps"
                if name:
                    found[self._folders[watch] / name] += 1

    def _watch(self, folder: Path) -> int:
        number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _IN_OPEN)
        assert number >= 0, f"{folder}: {os.strerror(ctypes.get_errno())}"
        return number
