"""The process of a server: started with a log, waited for, ended, paused. It never outlives this one.

Belongs here: processes and signals. Does not belong here: what is started, and how its answer looks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from etl_assets.engine.parent import die_with
from etl_assets.errors import ServerNotStarted
from etl_assets.processes import is_there
from etl_assets.stack.server import last_lines

_POLL_SECONDS = 0.05
_STOPPING_SECONDS = 30
_VANISHING_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The user a server runs as, if it is not this process's."""

    uid: int
    gid: int


class ServerProcess:
    """A running server.

    The kernel kills it when the thread that started it ends, so start servers in a thread that lives long.
    Ctrl-C in a terminal does not reach it: its clients may finish first.

    Args:
        name: Of the server, for messages.
        command: Its program and arguments.
        log: File that its output is appended to.
        account: The user it runs as, if this process is root's and the server refuses to be.
        environ: Its whole environment; this process's by default.
        folder: Its current folder.
    """

    def __init__(
        self,
        *,
        name: str,
        command: Sequence[str],
        log: Path,
        folder: Path,
        account: Account | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environ,
                start_new_session=True,
                # After the change of user, which would clear it.
                preexec_fn=partial(die_with, os.getpid()),
                **(
                    {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}
                ),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_until(self, is_ready: Callable[[], bool], timeout_seconds: float) -> None:
        """Wait until it is ready. If it is not in time, or ends, it is killed.

        Raises:
            ServerNotStarted: with the last lines that it wrote in this life.
        """
        deadline = time.monotonic() + timeout_seconds
        while not is_ready():
            status = self._process.poll()
            if status is not None or time.monotonic() > deadline:
                self.kill()
                what = "was not ready in time" if status is None else f"ended with status {status}"
                raise ServerNotStarted(
                    f"{self.name} {what}; the last lines of {self.log}:\n"
                    f"{last_lines(self.log, self._log_start)}",
                    fix="the lines above say why; a machine under heavy load may only need another try",
                    server=self.name,
                    log=self.log,
                )
            time.sleep(_POLL_SECONDS)

    def has_logged(self, text: bytes) -> bool:
        """Return whether it has written this text since it was started."""
        with self.log.open("rb") as content:
            content.seek(self._log_start)
            return text in content.read()

    def stop(self, number: signal.Signals) -> None:
        """Ask it to end, and kill it if it does not within half a minute."""
        if self.is_running():
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(number)
            try:
                self._process.wait(_STOPPING_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Kill it and all its processes, and return when none of them is left."""
        pids = self._stop_all() if self.is_running() else []
        for pid in pids:
            _signal(pid, signal.SIGKILL)
        self._process.wait()
        deadline = time.monotonic() + _VANISHING_SECONDS
        while any(is_there(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS / 5)

    def pause(self) -> None:
        self._stop_all()

    def resume(self) -> None:
        for pid in (*_descendants(self.pid), self.pid):
            _signal(pid, signal.SIGCONT)

    def _stop_all(self) -> list[int]:
        """Stop the process, then what it has started, generation by generation: none can start another."""
        stopped: list[int] = []
        found = [self.pid]
        while found:
            for pid in found:
                _signal(pid, signal.SIGSTOP)
            stopped += found
            found = [pid for pid in _descendants(self.pid) if pid not in stopped]
        return stopped


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # ended meanwhile
        os.kill(pid, number)


def _descendants(root: int) -> Iterator[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text("utf-8", errors="replace").rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    known = {root}
    while found := {pid for pid, parent in parents.items() if parent in known} - known:
        yield from found
        known |= found
