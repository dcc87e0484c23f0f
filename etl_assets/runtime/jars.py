"""Delta's two jars: their pins, their folder, and how they are fetched.

Belongs here: names, checksums, the cheap check before a session and the thorough one at set-up. Does not
belong here: passing them to Spark (`etl_assets.resources`).

The Ivy in pip's pyspark fetches them once, from the Maven repository it is configured for. All virtual
environments of a user share them. `spark.jars.packages` would fetch thirty-three jars instead and cost every
session seconds.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etl_assets.environment import CACHE_HOME, IVY_SETTINGS, JARS
from etl_assets.errors import RuntimeMissing
from etl_assets.runtime.java import Java

_SETUP_COMMAND = "etl-assets setup"
_STAGING_PREFIX = ".fetching-"
_STALE_AFTER_SECONDS = 3600
_FETCH_TIMEOUT_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One file of a Maven repository, pinned to its content."""

    group: str
    artifact: str
    version: str
    size_bytes: int
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    def problem_in(self, folder: Path, *, thorough: bool) -> str | None:
        """Return what is wrong with the jar in a folder, or None; its content is read only if `thorough`."""
        path = folder / self.file_name
        try:
            size_bytes = path.stat().st_size
            if size_bytes != self.size_bytes:
                return f"{self.file_name} has {size_bytes:,} bytes instead of {self.size_bytes:,}"
            if thorough and (sha256 := _sha256(path)) != self.sha256:
                return f"{self.file_name} has the SHA-256 {sha256} instead of {self.sha256}"
        except FileNotFoundError:
            return f"{self.file_name} is not there"
        except OSError as error:
            return f"{self.file_name} cannot be read: {error.strerror}"
        return None


DELTA_JARS = (
    Jar(
        group="io.delta",
        artifact="delta-spark_4.2_2.13",
        version="4.4.0",
        size_bytes=9_515_916,
        sha256="27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar(
        group="io.delta",
        artifact="delta-storage",
        version="4.4.0",
        size_bytes=113_863,
        sha256="c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
)


def jars_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder in `ETL_ASSETS_JARS`, or one in the user's cache."""
    if folder := JARS.read(environ):
        return Path(folder).expanduser().absolute()
    return Path(CACHE_HOME.read(environ) or "~/.cache").expanduser() / "etl-assets" / "jars"


def delta_jars(folder: Path | None = None, *, thorough: bool = False) -> tuple[Path, ...]:
    """Return the jars that a Spark session needs on its class path, checked by existence and size.

    Args:
        folder: Folder of the jars; `jars_folder()` by default.
        thorough: Compare their SHA-256 checksums too (about 20 ms).

    Raises:
        RuntimeMissing: a jar is missing or is not the pinned one; carries `folder` and `problems`.
    """
    folder = folder or jars_folder()
    if problems := _problems(folder, thorough=thorough):
        raise RuntimeMissing(
            f"Delta's jars in {folder} cannot be used: {'; '.join(problems)}",
            fix=f"run `{_SETUP_COMMAND}`",
            folder=folder,
            problems=problems,
        )
    return tuple(folder / jar.file_name for jar in DELTA_JARS)


def ensure_jars(java: Java, say: Callable[[str], None], folder: Path | None = None) -> tuple[Path, ...]:
    """Return the jars, fetched first if they are missing or damaged.

    May run in several processes at once, and may be killed at any moment. Each process fetches into a folder
    of its own and moves a jar into place, whole and checked, in one step.

    Raises:
        RuntimeMissing: the jars could not be fetched or put into the folder.
    """
    folder = folder or jars_folder()
    if problems := _problems(folder, thorough=True):
        say(f"==> fetching Delta's jars, 10 MB, into {folder} ({'; '.join(problems)})")
        _fetch(java, folder)
    return delta_jars(folder, thorough=True)


def _problems(folder: Path, *, thorough: bool) -> tuple[str, ...]:
    return tuple(filter(None, (jar.problem_in(folder, thorough=thorough) for jar in DELTA_JARS)))


def _fetch(java: Java, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _drop_stale_staging(folder)
        with tempfile.TemporaryDirectory(prefix=_STAGING_PREFIX, dir=folder) as staging:
            _run_ivy(java, Path(staging))
            for jar in DELTA_JARS:
                _move_into_place(jar, Path(staging), folder)
    except OSError as error:
        raise RuntimeMissing(
            f"Delta's jars could not be put into {folder}: {error.strerror}",
            fix=f"make room or allow writing there, or set {JARS.name} to another folder",
            folder=folder,
        ) from error


def ivy_command(java: Java, staging: Path, jars: Sequence[Jar]) -> list[str]:
    """Return the command that fetches jars, without their dependencies, into a folder."""
    ivy_file = staging / "ivy.xml"
    ivy_file.write_text(_ivy_module(jars), encoding="utf-8")
    command = [str(java.executable), f"-Duser.home={staging}", "-jar", str(_ivy_jar()), "-warn"]
    command += ["-cache", str(staging / "cache"), "-ivy", str(ivy_file)]
    command += ["-retrieve", f"{staging}/[artifact]-[revision].[ext]"]
    if settings := IVY_SETTINGS.read():
        command += ["-settings", settings]
    return command


def _run_ivy(java: Java, staging: Path) -> None:
    try:
        answer = subprocess.run(
            ivy_command(java, staging, DELTA_JARS),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_FETCH_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _not_fetched(staging.parent, f"no answer in {_FETCH_TIMEOUT_SECONDS} s") from error
    if answer.returncode != 0:
        raise _not_fetched(staging.parent, _first_reason(answer.stdout + answer.stderr))


def _move_into_place(jar: Jar, staging: Path, folder: Path) -> None:
    problem = jar.problem_in(staging, thorough=True)
    if problem:
        raise _not_fetched(folder, problem)
    fetched = staging / jar.file_name
    with fetched.open("rb") as content:
        os.fsync(content.fileno())
    fetched.replace(folder / jar.file_name)


def _not_fetched(folder: Path, reason: str) -> RuntimeMissing:
    wanted = "; ".join(f"{jar.coordinates} as {jar.file_name}, SHA-256 {jar.sha256}" for jar in DELTA_JARS)
    return RuntimeMissing(
        f"Delta's jars could not be fetched: {reason}",
        fix=(
            f"with a network, run `{_SETUP_COMMAND}` again ({IVY_SETTINGS.name} names an Ivy settings file"
            f" for a private mirror); without one, put into {folder} from Maven: {wanted}"
        ),
        folder=folder,
    )


def _ivy_module(jars: Sequence[Jar]) -> str:
    dependencies = "".join(
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" conf="default->master"'
        ' transitive="false"/>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="etl-assets" module="jars"/>'
        "<configurations><conf"
        f' name="default"/></configurations><dependencies>{dependencies}</dependencies></ivy-module>'
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    for package in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted(Path(package).glob("jars/ivy-*.jar")):
            return jar
    raise RuntimeMissing(
        "pyspark, or the Ivy among its jars, is not installed",
        fix="install the package again with its dependencies: `make setup` in a checkout, or its wheel by"
        " pip",
    )


def _drop_stale_staging(folder: Path) -> None:
    """Remove the folders of killed set-ups. One that still runs is younger."""
    for staging in folder.glob(f"{_STAGING_PREFIX}*"):
        if time.time() - staging.stat().st_mtime > _STALE_AFTER_SECONDS:
            shutil.rmtree(staging, ignore_errors=True)


def _first_reason(output: str) -> str:
    """Return the first line of Ivy's output that names a cause: a host, a certificate, a full disk.

    Such a line is neither heading (colons) nor progress (dots). If Ivy only reports what is unresolved,
    return that; it also stands between colons, at the end.
    """
    lines = [line.strip(" .\t") for line in output.splitlines()]
    causes = [line for line in lines if line and not line.startswith("::")]
    unresolved = [line.strip(": ") for line in lines if "#" in line]
    return next(iter(causes + unresolved), "Ivy gave no reason")


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
