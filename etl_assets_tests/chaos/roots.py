"""The roots of the domains under fire, and how each of them fails: a disk of its own, or a bucket behind a
bad network.

A fault that passes is a context manager: it holds until the block ends, and leaves what was there as it was.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from obstore.store import S3Store

from etl_assets.mirroring.stores.local_store import LocalStore
from etl_assets.mirroring.stores.object_store import ObjectStore
from etl_assets.mirroring.stores.store import Store
from etl_assets_tests.reference.fault_proxy import Fault, FaultProxy
from etl_assets_tests.reference.object_store_server import BUCKET, ObjectStoreServer

DISK = "48m"
BUSY_SECONDS = 150
BLINK_EVERY_SECONDS = 0.1
DISK_BLINKS, TABLES_UNREADABLE = "disk blinks", "tables unreadable"
COPIED = ("register", "tables")
"""What a backup has of a root, in the order of copying: what a register names is in the copy of the tables
after it.
"""
_FUSE = Path("/dev/fuse")
PassingFault = AbstractContextManager[None]
NETWORK = {fault: f"network {fault}" for fault in Fault}
"""What the faults of a network are called."""


class Root(Protocol):
    """The root of a domain."""

    @property
    def name(self) -> str:
        """The domain."""
        ...

    @property
    def uri(self) -> str:
        """What the platform file says."""
        ...

    @property
    def store(self) -> Store:
        """What is there, past all faults."""
        ...

    def begin(self) -> None:
        """Make it."""
        ...

    def end(self) -> None:
        """Take it away."""
        ...

    def empty(self) -> None:
        """Lose all that is there."""
        ...

    def faults(self) -> Mapping[str, PassingFault]:
        """What may be wrong with it for a while, by name."""
        ...


@contextmanager
def unserved(folder: Path) -> Generator[None]:
    """Listing a folder is an error, as from a network disk whose server died: nobody serves the file system
    above it.

    Raises CalledProcessError where this user may not mount.
    """
    nobody = os.open(_FUSE, os.O_RDWR)
    try:
        options = f"fd={nobody},rootmode=40000,user_id=0,group_id=0"
        _mount("-i", "-t", "fuse", "-o", options, "nobody", str(folder), keep=nobody)
    finally:
        os.close(nobody)
    try:
        yield
    finally:
        # Lazily: those who have it open have an error in their hands.
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


@contextmanager
def unreadable(folder: Path) -> Generator[None]:
    """A folder that cannot be listed, nor anything in it read; for the kernel's superuser, whom no mode
    stops, nobody serves it.
    """
    if os.geteuid() == 0:
        with unserved(folder):
            yield
        return
    mode = folder.stat().st_mode
    folder.chmod(0)
    try:
        yield
    finally:
        folder.chmod(mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A folder with a small file system of its own."""

    name: str
    path: Path

    @property
    def uri(self) -> str:
        return str(self.path)

    @property
    def store(self) -> Store:
        return LocalStore(self.path)

    def begin(self) -> None:
        """Mount it. Raises CalledProcessError where this user may not mount."""
        self.path.mkdir(parents=True, exist_ok=True)
        _mount("-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(self.path))

    def end(self) -> None:
        for path in (self.path, self._aside):
            while subprocess.run(["umount", "-l", str(path)], capture_output=True).returncode == 0:
                pass

    def empty(self) -> None:
        for part in self.path.iterdir():
            shutil.rmtree(part, ignore_errors=True) if part.is_dir() else part.unlink(missing_ok=True)

    def back_up(self) -> None:
        """Copy the tables and their registers."""
        shutil.rmtree(self._copy, ignore_errors=True)
        for part in COPIED:
            shutil.copytree(self.path / part, self._copy / part)

    def restore(self) -> None:
        """Put the last copy in the place of what is there."""
        for part in COPIED:
            shutil.rmtree(self.path / part)
            shutil.copytree(self._copy / part, self.path / part)

    @property
    def _copy(self) -> Path:
        return self.path.with_name(f"{self.path.name}-copy")

    def faults(self) -> Mapping[str, PassingFault]:
        found = {
            "disk gone": self._gone(),
            DISK_BLINKS: self._blinks(),
            "disk read-only": self._read_only(),
            "disk full": self._full(),
        }
        # A kernel without FUSE has no other file system that cannot be read.
        unreadable = {
            "disk unreadable": unserved(self.path),
            TABLES_UNREADABLE: unserved(self.path / "tables"),
        }
        return {**found, **unreadable} if _FUSE.exists() else found

    @property
    def _aside(self) -> Path:
        return self.path.with_name(f"{self.path.name}-aside")

    @contextmanager
    def _gone(self) -> Generator[None]:
        """An empty folder is in its place, as when a disk is not mounted."""
        self._aside.mkdir(exist_ok=True)
        with self._away():
            yield

    @contextmanager
    def _blinks(self) -> Generator[None]:
        """For some milliseconds at a time, over and over, an empty folder is in its place."""
        self._aside.mkdir(exist_ok=True)
        done = threading.Event()

        def blink() -> None:
            while not done.wait(BLINK_EVERY_SECONDS):
                with self._away():
                    pass

        with ThreadPoolExecutor(1) as aside:
            blinking = aside.submit(blink)
            try:
                yield
            finally:
                done.set()
            blinking.result()

    @contextmanager
    def _away(self) -> Generator[None]:
        _mount("--move", str(self.path), str(self._aside))
        try:
            yield
        finally:
            _mount("--move", str(self._aside), str(self.path))

    @contextmanager
    def _read_only(self) -> Generator[None]:
        self._remount("ro")
        try:
            yield
        finally:
            self._remount("rw")

    def _remount(self, how: str) -> None:
        # A file that is being written keeps the disk writable: until it is closed there is no answer but
        # "busy".
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                _mount("-o", f"remount,{how}", str(self.path))
                return
            except subprocess.CalledProcessError:
                assert time.monotonic() < deadline, f"{self.name} cannot be made {how}"
                time.sleep(0.05)

    @contextmanager
    def _full(self) -> Generator[None]:
        filler = self.path / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * 4096)
            except OSError:
                pass
        try:
            yield
        finally:
            filler.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A bucket on a server that everybody reaches through a network that fails."""

    name: str
    server: ObjectStoreServer
    network: FaultProxy
    uri: str = f"s3://{BUCKET}/platform"

    @property
    def store(self) -> Store:
        backend = S3Store.from_url(
            self.uri, endpoint=self.server.endpoint, client_options={"allow_http": True}
        )
        return ObjectStore(backend, name=self.uri)

    def begin(self) -> None:
        self.server.start()

    def end(self) -> None:
        self.network.close()
        self.server.kill()

    def empty(self) -> None:
        store = self.store
        for key in list(store.list("")):
            store.delete(key)

    def restart(self) -> None:
        """Kill the server, which remembers nothing, and start it again."""
        self.server.kill()
        self.server.start()

    def faults(self) -> Mapping[str, PassingFault]:
        return {name: self.network.fault(fault) for fault, name in NETWORK.items()}


def _mount(*arguments: str, keep: int | None = None) -> None:
    kept = () if keep is None else (keep,)
    subprocess.run(["mount", *arguments], check=True, capture_output=True, pass_fds=kept)


def keys_of_newest_folders(root: Root, ending: str) -> list[str]:
    """Keys of the files of the tables' newest folders in a root."""
    keys = sorted(key for key in root.store.list("tables/") if "/g" in key)
    newest = {key.split("/")[1]: key.split("/")[2] for key in keys}
    return [key for key in keys if key.endswith(ending) and key.split("/")[2] == newest[key.split("/")[1]]]
