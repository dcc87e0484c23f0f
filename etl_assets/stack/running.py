"""The list of servers that run on a folder, for other processes: `etl-assets doctor`, the next start.

Belongs here: the file with the list, and whether what it names still runs. Does not belong here: starting and
ending servers (`full.py`).
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from etl_assets.delta.log.durability import write_durably
from etl_assets.processes import namespace, since_1970, started_at

DEMO_HOME = "stack"
"""The home folder of the demo over all servers, below the one that ETL_ASSETS_HOME names."""
CDC_HOME = "cdc"
"""The home folder of the demo of a capture, below the one that ETL_ASSETS_HOME names."""
SERVERS = "servers"
"""Folder of the servers in a home folder."""
_FILE = "running.json"
_ENDING_SECONDS = 10
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """One server's process.

    Attributes:
        name: Of the server.
        address: Host and port.
        pid: Its first process.
        ticks: When that process started, in the kernel's clock ticks: another process may get its id.
        owner: The process that started it, and ends it.
    """

    name: str
    address: str
    pid: int
    ticks: str
    owner: int

    @property
    def since(self) -> dt.datetime:
        """When it started (UTC)."""
        return dt.datetime.fromtimestamp(since_1970(self.ticks), dt.UTC).replace(microsecond=0)

    @property
    def is_alive(self) -> bool:
        return started_at(self.pid) == self.ticks


def demo_home(home: Path, name: str) -> Path:
    """Return the home folder of a demo for a home folder, which may be the demo's itself.

    Args:
        home: The home folder.
        name: The demo's: `DEMO_HOME` or `CDC_HOME`.
    """
    return home if (home / SERVERS).is_dir() else home / name


def servers_folders(home: Path) -> tuple[Path, ...]:
    """Return where the servers of a home folder, or of the demos' below it, have their folders."""
    return home / SERVERS, home / DEMO_HOME / SERVERS, home / CDC_HOME / SERVERS


def running_server(name: str, address: str, pid: int) -> RunningServer:
    """Describe a server of this process."""
    return RunningServer(name=name, address=address, pid=pid, ticks=started_at(pid) or "", owner=os.getpid())


def write_running(folder: Path, servers: Iterable[RunningServer]) -> None:
    """Replace the list of a folder."""
    content = {"namespace": namespace(), "servers": [asdict(each) for each in servers]}
    write_durably(folder / _FILE, json.dumps(content, indent=1).encode())


def read_running(folder: Path) -> tuple[RunningServer, ...]:
    """Return the servers of the list that run; none if there is no list, or it is another machine's."""
    try:
        content = json.loads((folder / _FILE).read_text("utf-8"))
        if content["namespace"] != namespace():
            return ()
        listed = [RunningServer(**each) for each in content["servers"]]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ()
    return tuple(each for each in listed if each.is_alive)


def end_left_over(folder: Path) -> None:
    """Wait until the servers of a process that was killed have ended, and kill those that stay.

    Call it only while holding the folder's lock: the servers of a process that lives are its own.
    """
    deadline = time.monotonic() + _ENDING_SECONDS
    while left := read_running(folder):
        if time.monotonic() > deadline:
            for each in left:
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)
            deadline += _ENDING_SECONDS
        time.sleep(_POLL_SECONDS)
