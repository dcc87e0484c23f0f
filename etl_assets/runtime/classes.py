"""The archive of classes: what Spark and Delta load at their start, kept parsed and checked for later JVMs to map.

Loading 20,000 classes from 300 jars is most of what a short run costs. The JVM can dump those that a run has used, and
maps them at its next start (class-data sharing). Belongs here: which archive is right, having it made at set-up, and the
options that use it. Does not belong here: the run that is recorded (`etl_assets.rehearsal`).

An archive holds for one Java and the very jars it was made with. Its name says which; under another name it is not even
looked for, and the JVM itself refuses one that does not fit, in silence, and loads classes as ever.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from etl_assets.runtime.java import Java

_PREFIX, _SUFFIX, _FAILED, _RECORDING = "classes-", ".jsa", ".failed", ".recording-"
_KEPT = 3
"""Archives of one user's installations that stay, of those that were used last: each takes 190 MB."""
_RECORDING_SECONDS = 900


def archive_options(java: Java, jars: Iterable[Path]) -> tuple[str, ...]:
    """What the JVM is told to use the archive; nothing where there is none."""
    file = archive_file(java, tuple(jars))
    if not file.is_file():
        return ()
    # Those that were used last stay. One of another user is not ours to remove either.
    with suppress(OSError):
        os.utime(file)
    # What the JVM has to say of an archive it refuses would go to standard output, among what was asked for.
    return (f"-XX:SharedArchiveFile={file}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def archive_file(java: Java, jars: tuple[Path, ...]) -> Path:
    """Where the archive for this Java and class path is, or would be: beside Delta's jars."""
    return jars[0].parent / f"{_PREFIX}{_key(java, jars)}{_SUFFIX}"


def failed_mark(java: Java, jars: tuple[Path, ...]) -> Path:
    """File that says why recording the archive failed, and keeps it from being tried again."""
    return archive_file(java, jars).with_suffix(_FAILED)


def ensure_archive(java: Java, jars: tuple[Path, ...], say: Callable[[str], None]) -> Path | None:
    """The archive, made if it is not there, which takes a minute. Without it everything works, and starts slower.

    Made under another name and moved into place whole. Those of Java's and jars that are gone are removed, but for the
    few that were used last: other installations of this user may have them. A recording that failed is not tried again for the same
    Java and jars as long as its mark is beside them.
    """
    file = archive_file(java, jars)
    mark = failed_mark(java, jars)
    if file.is_file():
        return file
    if mark.is_file():
        say(f"==> without an archive of classes: recording it failed before. To try again, remove {mark}")
        return None
    say(f"==> recording the classes of a Spark run, once, into {file.parent} (200 MB, 1 to 2 minutes)")
    try:
        with tempfile.TemporaryDirectory(prefix=_RECORDING, dir=file.parent) as folder:
            recorded = Path(folder, file.name)
            if (problem := _record(java, recorded)) is None:
                recorded.replace(file)
            else:
                mark.write_text(f"{problem}\n", "utf-8")
    except OSError as error:  # a folder that is for reading only, a full disk: found out at once, each time
        problem = str(error)
    if problem is not None:
        say(f"==> not recorded: {problem}. Spark works without, and starts slower")
        return None
    _remove_old(file.parent)
    say(f"==> recorded, {file.stat().st_size / 1e6:,.0f} MB")
    return file


def _record(java: Java, file: Path) -> str | None:
    """Have a rehearsal recorded; what went wrong, if anything did."""
    command = [sys.executable, "-m", "etl_assets.rehearsal", str(file)]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "JAVA_HOME": str(java.home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_RECORDING_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it took longer than {_RECORDING_SECONDS} s"
    if done.returncode != 0 or not file.is_file():
        return (done.stderr.strip().splitlines() or ["the JVM wrote no archive"])[-1]
    return None


def _remove_old(folder: Path) -> None:
    archives = sorted(folder.glob(f"{_PREFIX}*{_SUFFIX}"), key=lambda file: file.stat().st_mtime)
    for file in archives[:-_KEPT]:
        file.unlink(missing_ok=True)
    for folder_of_killed in folder.glob(f"{_RECORDING}*"):
        if time.time() - folder_of_killed.stat().st_mtime > _RECORDING_SECONDS:
            shutil.rmtree(folder_of_killed, ignore_errors=True)


def _key(java: Java, jars: tuple[Path, ...]) -> str:
    """Changes with all that the JVM compares, and with whatever of it a new installation would bring."""
    facts = [str(java.home), java.release, *sorted(_facts(jars)), *sorted(_facts(_spark_jars()))]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _facts(jars: Iterable[Path]) -> Iterator[str]:
    for jar in jars:
        found = jar.stat()
        # In seconds, as the JVM compares it, and as a layer of a container image keeps it.
        yield f"{jar} {found.st_size} {int(found.st_mtime)}"


def _spark_jars() -> Iterator[Path]:
    spec = importlib.util.find_spec("pyspark")
    for package in (spec.submodule_search_locations or ()) if spec else ():
        yield from Path(package).glob("jars/*.jar")
