"""Checks before `etl-assets dev` starts: it is the only one on its home folder, and its address is free.

Two sets of daemons on one instance would evaluate every sensor and schedule twice.
"""

from __future__ import annotations

import datetime as dt
import errno
import fcntl
import json
import os
import socket
from pathlib import Path

from etl_assets.errors import AddressUnusable, DevRunning

_FILE = "dev.lock"
_NEXT_PORTS = 20


def hold_home(home: Path) -> None:
    """Lock a home folder for the lifetime of this process, across `exec`. Children do not hold the lock.

    Raises:
        DevRunning: another process holds it; the message names it.
    """
    home.mkdir(parents=True, exist_ok=True)
    # Never closed: this kind of lock belongs to the process, and closing the file once would release it.
    opened = os.open(home / _FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        holder = _holder(os.read(opened, 4096))
        os.close(opened)
        raise DevRunning(
            f"{holder} runs `etl-assets dev` on {home} already",
            fix="open its UI, or end it first (`kill` and its process id); another installation has another"
            " ETL_ASSETS_HOME",
            home=home,
        ) from None
    os.set_inheritable(opened, True)
    since = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    os.ftruncate(opened, 0)
    os.write(opened, json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": since}).encode())


def _holder(content: bytes) -> str:
    try:
        found = json.loads(content)
        return f"process {found['pid']} on {found['host']}, since {found['since']},"
    except (ValueError, KeyError, TypeError):
        return "another process"


def expect_free(host: str, port: int) -> None:
    """Check that a server can listen on an address; port 0 means any port.

    Raises:
        AddressUnusable: the address is in use, or is not this machine's.
    """
    if (error := _refusal(host, port)) is None:
        return
    if error.errno == errno.EADDRINUSE:
        another = next(
            (each for each in range(port + 1, port + 1 + _NEXT_PORTS) if _refusal(host, each) is None), None
        )
        raise AddressUnusable(
            f"port {port} of {host} is in use by another program",
            fix=f"end that one (`ss -ltnp sport = :{port}` shows it), or take another: "
            f"`etl-assets dev --port {another or 'PORT'}`",
            host=host,
            port=port,
        )
    if error.errno == errno.EACCES:
        fix = f"ports below 1024 are not for this user: `etl-assets dev --port {port + 8000}`"
    else:
        fix = "name an address of this machine: `--host 127.0.0.1`, or `--host 0.0.0.0` for all of them"
    raise AddressUnusable(
        f"nothing can listen on {host}, port {port}: {error.strerror or error}", fix=fix, host=host, port=port
    )


def _refusal(host: str, port: int) -> OSError | None:
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as listener:
                # As the server does: a recently used address counts as free.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address)
    except (OSError, OverflowError) as error:
        return error if isinstance(error, OSError) else OSError(errno.EINVAL, "there is no such port")
    return None
