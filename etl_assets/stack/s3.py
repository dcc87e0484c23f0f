"""An S3-compatible store: moto's server, which holds everything in memory.

Belongs here: the process and how a client is pointed to it. Does not belong here: buckets.
"""

from __future__ import annotations

import importlib.util
import sys

from etl_assets.errors import RuntimeMissing
from etl_assets.stack.http import answers
from etl_assets.stack.managed import ManagedServer
from etl_assets.stack.process import ServerProcess

REGION = "us-east-1"
_STARTING_SECONDS = 60


class S3Server(ManagedServer):
    """The store, on one port for all its lives. `stop` and `kill` lose its objects and buckets.

    Writes on a condition (If-None-Match, If-Match) work; any credentials do.
    """

    name = "S3"

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables that point clients of S3 to it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "not-checked",
            "AWS_REGION": REGION,
        }

    def _launch(self) -> ServerProcess:
        if importlib.util.find_spec("moto") is None or importlib.util.find_spec("flask") is None:
            raise RuntimeMissing(
                "the S3-compatible store needs the package moto with its server",
                fix="run `pip install 'moto[server]'`",
            )
        process = ServerProcess(
            name=self.name,
            command=[sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            log=self.log,
            folder=self.folder,
        )
        process.wait_until(lambda: answers(self.port, "/moto-api/"), _STARTING_SECONDS)
        return process
