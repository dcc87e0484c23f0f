"""Submission of a run to the engine: the socket, the messages, and the start message.

A run must be executed at most once, even if one of the two sides dies. So the engine forks a child that waits
and answers with its process id. The child begins when the launcher sends the start message over the same
connection, and ends if the connection does. Before that message the launcher may launch the run otherwise;
after it, it does not.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SOCKET = "engine.sock"
_LOCK = "engine.lock"
GO = b"go\n"
_CONNECT_SECONDS = 1.0
_ANSWER_SECONDS = 10.0
_MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A run to execute.

    Attributes:
        run_id: Dagster's run id.
        instance: Dagster's serialized reference to the instance that has the run.
        executable: The Python interpreter of the code location.
        working_directory: The folder that the code location's modules are imported from.
        environment: Environment of the run's process.
    """

    run_id: str
    instance: str
    executable: str
    working_directory: str
    environment: Mapping[str, str]


def hand_over(
    home: Path,
    asked: Asked,
    before: Callable[[int], None],
    refused: Callable[[str], object] = lambda why: None,
) -> bool:
    """Submit a run to the engine of an installation.

    Args:
        home: The installation's home folder.
        asked: The run.
        before: Called with the id of the process that will execute the run, before it begins.
        refused: Called with the engine's reason to refuse the run.

    Returns:
        Whether the engine executes the run. If False, no process does.
    """
    try:
        with _connected(home) as connection:
            answer = _ask(connection, {"run": asdict(asked)})
            if (pid := answer.get("pid")) is not None:
                before(pid)
                connection.sendall(GO)
                return True
    except (OSError, ValueError):
        return False
    refused(str(answer.get("refused", "it did not say why")))
    return False


def status(home: Path) -> dict[str, Any] | None:
    """Return the engine's status; None if there is no engine."""
    try:
        with _connected(home) as connection:
            return _ask(connection, {"status": True})
    except (OSError, ValueError):
        return None


@contextmanager
def listening(home: Path) -> Generator[socket.socket]:
    """Listen on the socket of an installation, for this user only; the socket is removed afterwards.

    Raises:
        FileExistsError: another engine listens there.
    """
    with (
        _only_one(home),
        _short_path(home) as path,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
    ):
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(16)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def _only_one(home: Path) -> Generator[None]:
    with (home / _LOCK).open("w") as file:
        try:
            # Not `flock`: the engine's children would inherit it and hold it while they outlive the engine.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise FileExistsError(home / SOCKET) from None
        yield


def read_message(connection: socket.socket) -> dict[str, Any]:
    """Receive one message: a line of JSON.

    Raises:
        OSError, ValueError: the other side sent nothing in time, or no valid message.
    """
    received = b""
    while not received.endswith(b"\n"):
        part = connection.recv(1 << 16)
        if not part or len(received) > _MAX_BYTES:
            raise ValueError("the connection ended within a message")
        received += part
    message = json.loads(received)
    if not isinstance(message, dict):
        raise ValueError("a message is an object")
    return message


def send_message(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Send one message: a line of JSON."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def _ask(connection: socket.socket, message: Mapping[str, Any]) -> dict[str, Any]:
    send_message(connection, message)
    connection.settimeout(_ANSWER_SECONDS)
    return read_message(connection)


@contextmanager
def _connected(home: Path) -> Generator[socket.socket]:
    with _short_path(home) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(str(path))
        yield connection


@contextmanager
def _short_path(home: Path) -> Generator[Path]:
    """Yield a short path to the socket, by way of an open folder.

    The address of a socket has 108 bytes; the path of a home folder may be longer.
    """
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield Path(f"/proc/self/fd/{folder}") / SOCKET
    finally:
        os.close(folder)
