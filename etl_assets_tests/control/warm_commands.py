"""`etl-assets` commands in processes of their own, forked from one that has imported everything.

A process that starts from nothing spends seconds on imports, and a test that kills many would spend most of
its time there. A forked process has no state but modules.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from etl_assets_tests.kill.dying_run import Gateway, attached_session

ROOT = Path(__file__).parents[2]


class WarmCommands:
    """Starts commands. Each ends with the block at the latest.

    Args:
        preload: A library that every command loads first.
        gateway: The JVM that commands use; they start none.
    """

    def __init__(self, preload: Path | None, gateway: Gateway) -> None:
        added = {} if preload is None else {"LD_PRELOAD": str(preload)}
        self._gateway = gateway
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "etl_assets_tests.control.warm_commands"],
            cwd=ROOT,
            env={**os.environ, **added},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> WarmCommands:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.close()  # on which it ends all commands
        self._parent.wait(30)
        self._parent.stdout.close()

    def start(self, words: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
        """Start `etl-assets` with some words, and return the process id."""
        asked = {
            "words": list(words),
            "environment": dict(environment),
            "log": str(log),
            "gateway": asdict(self._gateway),
        }
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(asked) + "\n")
        self._parent.stdin.flush()
        return int(self._parent.stdout.readline())


def kill(pid: int) -> None:
    """Kill a command, and wait until it is gone."""
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Return whether a command still runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _run(asked: Mapping[str, Any]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.update(asked["environment"])
    with Path(asked["log"]).open("ab") as file, Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    from etl_assets.cli.main import cli

    if asked["words"][0] == "worker":
        attached_session(Gateway(**asked["gateway"]))
    cli(asked["words"])


def _serve() -> None:
    import dagster  # noqa: F401 - imported before all forks
    import deltalake  # noqa: F401
    import pyspark.sql.functions  # noqa: F401

    import etl_assets.serve.server
    import etl_assets.worker.worker  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel takes ended children away
    started = []
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                _run(json.loads(line))
            finally:
                os._exit(1)
        started.append(pid)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
    for pid in started:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _serve()
