"""PostgreSQL by the server binaries of this machine: a cluster of its own, with a random password.

Belongs here: the binaries, the cluster, its settings. Does not belong here: databases and tables.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from etl_assets.errors import RuntimeMissing, ServerNotStarted
from etl_assets.runtime import system_packages
from etl_assets.stack.managed import ManagedServer
from etl_assets.stack.process import Account, ServerProcess
from etl_assets.stack.server import HOST, last_lines

PACKAGES = {
    "apt-get": "postgresql",
    "dnf": "postgresql-server",
    "zypper": "postgresql-server",
    "pacman": "postgresql",
    "apk": "postgresql",
    "brew": "postgresql",
}
USUAL_PLACES = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "opt/homebrew/opt/postgresql*/bin",
    "usr/local/bin",
    "usr/bin",
)
USER = "etl_assets"
SETTINGS = {
    # Sources read its log, sinks commit in two phases.
    "wal_level": "logical",
    "max_prepared_transactions": "16",
    "max_replication_slots": "16",
    "max_wal_senders": "16",
    "shared_buffers": "32MB",
    "timezone": "UTC",
}
_STARTING_SECONDS = 60


class PostgresServer(ManagedServer):
    """One cluster with the superuser `etl_assets` and the database `postgres`.

    Args:
        folder: Folder of the cluster; a temporary one by default. Root's servers run as `postgres`, who must
            be able to enter it.
        port: Its port; a free one by default.
        settings: More settings by name, or others than `SETTINGS`.
        durable: Whether a commit reaches the disk before it is answered. False is for tests: a commit then
            survives `kill`, but not a power cut.
        binaries: Folder with the programs of another version; those of the newest server on this machine by
            default.
    """

    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # "fast": ends sessions, writes a checkpoint

    def __init__(
        self,
        folder: Path | None = None,
        port: int | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        durable: bool = True,
        binaries: Path | None = None,
    ) -> None:
        super().__init__(folder, port)
        self._binaries = binaries
        self.settings = {**SETTINGS, "fsync": "on" if durable else "off", **(settings or {})}
        self._data = self.folder / "data"
        self._password_file = self.folder / "password"

    @property
    def user(self) -> str:
        return USER

    @property
    def password(self) -> str:
        """The superuser's password, made with the cluster."""
        return self._password_file.read_text("utf-8")

    @property
    def url(self) -> str:
        return self.database_url("postgres")

    def database_url(self, database: str, port: int | None = None) -> str:
        """Return the URL of a database, through another port (a proxy's) if one is given."""
        return f"postgresql://{USER}:{self.password}@{HOST}:{port or self.port}/{database}"

    def _launch(self) -> ServerProcess:
        binaries = self._binaries or find_binaries()
        account = _account()
        if not (self._data / "PG_VERSION").exists():
            self._create(binaries, account)
        settings = {**self.settings, "listen_addresses": HOST, "port": str(self.port)}
        settings["unix_socket_directories"] = ""
        command = [str(binaries / "postgres"), "-D", str(self._data)]
        for setting, value in settings.items():
            command += ["-c", f"{setting}={value}"]
        process = ServerProcess(
            name=self.name, command=command, log=self.log, folder=self._data, account=account
        )
        process.wait_until(lambda: self._is_ready(process.pid), _STARTING_SECONDS)
        return process

    def _create(self, binaries: Path, account: Account | None) -> None:
        # Moved into place when it is whole: one that was begun and not completed is made again.
        beginning = self.folder / "data.beginning"
        shutil.rmtree(beginning, ignore_errors=True)
        beginning.mkdir(mode=0o700)
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(secrets.token_urlsafe(24), "utf-8")
        if self._is_temporary:
            self.folder.chmod(0o711)  # the account may pass
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as password:
            password.write(self.password)
            password.flush()
            if account:
                os.chown(beginning, account.uid, account.gid)
                os.chown(password.name, account.uid, account.gid)
            command = [str(binaries / "initdb"), "-D", str(beginning), "-U", USER, "-A", "scram-sha-256"]
            command += [f"--pwfile={password.name}", "-E", "UTF8", "--locale=C", "--no-sync"]
            with self.log.open("ab") as log:
                status = subprocess.call(
                    command,
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=_STARTING_SECONDS * 2,
                    user=account.uid if account else None,
                    group=account.gid if account else None,
                    extra_groups=[] if account else None,
                )
        if status != 0:
            raise ServerNotStarted(
                f"initdb ended with status {status}; the last lines of {self.log}:\n{last_lines(self.log)}",
                fix="the lines above say why; root's server runs as postgres, who must be able to enter"
                f" {self.folder}",
                server=self.name,
                log=self.log,
            )
        beginning.rename(self._data)

    def _is_ready(self, pid: int) -> bool:
        """As `pg_ctl -w` sees it: the first line is the process, the eighth its state."""
        try:
            lines = (self._data / "postmaster.pid").read_text("utf-8").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() in ("ready", "standby")


def find_binaries() -> Path:
    """Return the folder of the newest PostgreSQL server on this machine.

    Raises:
        RuntimeMissing: there is none; the fix names the package.
    """
    folders = [folder for place in USUAL_PLACES for folder in Path("/").glob(place)]
    whole = [each for each in folders if (each / "initdb").is_file() and (each / "postgres").is_file()]
    if whole:
        return max(whole, key=_version)
    command = system_packages.install_command(PACKAGES)
    raise RuntimeMissing(
        "PostgreSQL's server (initdb and postgres) is not on this machine",
        fix=f"run `{command}`" if command else "install the package `postgresql`",
    )


def _version(folder: Path) -> float:
    """Number in the name of the folder above `bin`: 15, 9.6; 0 without one."""
    digits = folder.parent.name.rpartition("-")[2].rpartition("@")[2]
    return float(digits) if digits.replace(".", "", 1).isdigit() else 0.0


def _account() -> Account | None:
    """PostgreSQL refuses to run as root: who runs it then."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=user.pw_uid, gid=user.pw_gid)
    raise RuntimeMissing(
        "PostgreSQL does not run as root, and neither user postgres nor nobody exists",
        fix="run this as another user",
    )
