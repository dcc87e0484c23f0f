"""`etl-assets serve` as a server of the stack."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from etl_assets.stack.http import answers
from etl_assets.stack.managed import ManagedServer
from etl_assets.stack.process import ServerProcess

_STARTING_SECONDS = 60


class IngestServer(ManagedServer):
    """The HTTP ingest of an installation, on the port of its platform file.

    Args:
        folder: Folder of its log.
        port: The port.
        environ: Its whole environment, which names the installation.
    """

    name = "HTTP ingest"

    def __init__(self, folder: Path, port: int, *, environ: Mapping[str, str]) -> None:
        super().__init__(folder, port)
        self._environ = environ

    def _launch(self) -> ServerProcess:
        process = ServerProcess(
            name=self.name,
            command=[sys.executable, "-m", "etl_assets.cli.main", "serve", "--port", str(self.port)],
            log=self.log,
            folder=self.folder,
            environ=self._environ,
        )
        process.wait_until(lambda: answers(self.port, "/health"), _STARTING_SECONDS)
        return process
