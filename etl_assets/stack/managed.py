"""What servers of one process share: folder, port, log, and the life that `server.Server` describes.

Belongs here: the life. Does not belong here: a server's command and settings, which are its own class's.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from etl_assets.stack.process import ServerProcess
from etl_assets.stack.server import HOST, expect_free, free_port

_TEMPORARY_PREFIX = "etl-assets-"


class ManagedServer:
    """A server that is one process, or one with children.

    Args:
        folder: Folder of its data and log; a temporary one, removed by `close`, by default.
        port: Its port; a free one by default.
    """

    name = "server"
    stop_signal = signal.SIGTERM

    def __init__(self, folder: Path | None = None, port: int | None = None) -> None:
        self._is_temporary = folder is None
        # Not below pytest's folder, which other users cannot enter.
        self.folder = folder or Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY_PREFIX}{self.name.lower()}-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port() if port is None else port
        self.log = self.folder / "log"
        self._process: ServerProcess | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running()

    @property
    def pid(self) -> int:
        """Id of its first process."""
        if self._process is None:
            raise RuntimeError(f"{self.name} does not run")
        return self._process.pid

    def start(self) -> None:
        if self.is_running:
            return
        expect_free(self.name, self.port)
        self._process = self._launch()

    def stop(self) -> None:
        if self._process is not None:
            self._process.resume()
            self._process.stop(self.stop_signal)
            self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def pause(self) -> None:
        if self._process is None:  # another process may have started it
            raise RuntimeError(f"this process did not start {self.name}, and cannot pause it")
        self._process.pause()

    def resume(self) -> None:
        if self._process is not None:
            self._process.resume()

    def close(self) -> None:
        if self._is_temporary:
            self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self.stop()

    def _launch(self) -> ServerProcess:
        """Start the process and return when it answers."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
