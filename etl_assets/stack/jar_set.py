"""The pinned jars of a server that runs on Java: fetched once, checked, shared by all environments of a user.

Belongs here: which files make up a server, and getting them. Does not belong here: Delta's jars
(`runtime/jars.py`), which Spark needs; how a file is pinned is described there.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from etl_assets.environment import IVY_SETTINGS, JARS
from etl_assets.errors import RuntimeMissing
from etl_assets.runtime.jars import Jar, ivy_command, jars_folder
from etl_assets.runtime.java import Java

_FETCH_TIMEOUT_SECONDS = 900
_SAY_EVERY_SECONDS = 5
_RETRIES = 2
"""A registry that breaks off one of a hundred files gives it at the next try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """All jars of one server.

    Attributes:
        title: What they are, for messages.
        folder: Where they are kept.
    """

    title: str
    folder: Path
    jars: tuple[Jar, ...]

    @property
    def size_bytes(self) -> int:
        return sum(jar.size_bytes for jar in self.jars)

    @property
    def class_path(self) -> str:
        return ":".join(str(self.folder / jar.file_name) for jar in self.jars)

    def ensure(self, java: Java, say: Callable[[str], None]) -> None:
        """Fetch what is missing or damaged. Processes that need the same jars wait for the one that fetches.

        Raises:
            RuntimeMissing: the jars could not be fetched or put into the folder.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with _lock(self.folder / ".lock"):
                for _ in range(_RETRIES):
                    if not (missing := self._missing()):
                        return
                    problem = self._fetch(java, missing, say)
                if missing := self._missing():
                    raise self._not_fetched(problem, missing)
        except OSError as error:
            raise RuntimeMissing(
                f"the jars of {self.title} could not be put into {self.folder}: {error.strerror}",
                fix=f"make room or allow writing there, or set {JARS.name} to another folder",
                folder=self.folder,
            ) from error

    def _missing(self) -> tuple[Jar, ...]:
        return tuple(jar for jar in self.jars if jar.problem_in(self.folder, thorough=True))

    def _fetch(self, java: Java, missing: tuple[Jar, ...], say: Callable[[str], None]) -> str:
        """Fetch jars, and move those that are what they should be into place. Returns what Ivy said."""
        size_bytes = sum(jar.size_bytes for jar in missing)
        say(f"==> fetching {self.title}, {len(missing)} jars, {size_bytes / 1e6:.0f} MB, into {self.folder}")
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=self.folder) as staging:
            folder = Path(staging)
            output = folder / "output"
            with output.open("wb") as log:
                process = subprocess.Popen(
                    ivy_command(java, folder, missing), stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
                try:
                    self._watch(process, folder, size_bytes, say)
                finally:
                    process.kill()
                    process.wait()
            for jar in missing:
                if jar.problem_in(folder, thorough=True) is None:
                    (folder / jar.file_name).replace(self.folder / jar.file_name)
            said = output.read_text("utf-8", errors="replace").splitlines()
        reasons = [line.strip() for line in said if "#" in line or "rror" in line]
        return reasons[-1] if reasons else "no reason given"

    def _watch(
        self, process: subprocess.Popen[bytes], folder: Path, size_bytes: int, say: Callable[[str], None]
    ) -> None:
        begun = said = time.monotonic()
        while process.poll() is None and time.monotonic() - begun < _FETCH_TIMEOUT_SECONDS:
            time.sleep(0.1)
            if time.monotonic() - said > _SAY_EVERY_SECONDS:
                said = time.monotonic()
                done = sum(
                    each.stat().st_size for each in (folder / "cache").rglob("*.jar*") if each.is_file()
                )
                say(f"    {self.title}: {min(done, size_bytes) / 1e6:.0f} of {size_bytes / 1e6:.0f} MB")

    def _not_fetched(self, reason: str, missing: tuple[Jar, ...]) -> RuntimeMissing:
        wanted = "; ".join(f"{jar.coordinates}, SHA-256 {jar.sha256}" for jar in missing[:3])
        return RuntimeMissing(
            f"{len(missing)} jars of {self.title} could not be fetched: {reason}",
            fix=f"with a network, try again ({IVY_SETTINGS.name} names an Ivy settings file for a private"
            f" mirror); without one, put the jars into {self.folder} from Maven: {wanted}"
            f"{' ...' if len(missing) > 3 else ''}",
            folder=self.folder,
        )


def load(name: str, title: str) -> JarSet:
    """Return a set by the name of its list in `jars/`."""
    content = (files("etl_assets.stack") / "jars" / f"{name}.json").read_text("utf-8")
    pins = tuple(Jar(**each) for each in json.loads(content))
    return JarSet(title=title, folder=jars_folder() / name, jars=pins)


@contextmanager
def _lock(path: Path) -> Generator[None]:
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # given up by the kernel when this process ends
        yield
