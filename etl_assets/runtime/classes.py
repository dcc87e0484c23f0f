"""The class archive: classes that Spark and Delta load at startup, stored parsed and verified for later JVMs.

Loading 20,000 classes from 300 jars is most of the cost of a short run. The JVM can dump the classes that a
run has used, and map them at its next start (class-data sharing). Belongs here: the choice of the archive,
its recording at set-up, and the options that use it. Does not belong here: the run that is recorded
(`etl_assets.rehearsal`).

An archive is valid for one Java and exactly the jars it was made with. Its name contains a hash of both, so
an archive of another combination is not even found. A JVM that is given an unsuitable one silently loads
classes as usual.
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
"""Number of most recently used archives of a user's installations to keep: each takes 190 MB."""
_RECORDING_SECONDS = 900


def archive_options(java: Java, jars: Iterable[Path]) -> tuple[str, ...]:
    """Return the JVM options that use the archive; empty if there is none."""
    file = archive_file(java, tuple(jars))
    if not file.is_file():
        return ()
    # The archives used last are kept. Touching another user's archive fails, and it is not ours to remove.
    with suppress(OSError):
        os.utime(file)
    # The JVM's messages about an unsuitable archive would go to standard output, among the results.
    return (f"-XX:SharedArchiveFile={file}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def archive_file(java: Java, jars: tuple[Path, ...]) -> Path:
    """Return the path of the archive for this Java and class path. The archive may not exist.

    The path is beside Delta's jars.
    """
    return jars[0].parent / f"{_PREFIX}{_key(java, jars)}{_SUFFIX}"


def failed_mark(java: Java, jars: tuple[Path, ...]) -> Path:
    """Return the file that holds the reason of a failed recording and prevents another attempt."""
    return archive_file(java, jars).with_suffix(_FAILED)


def ensure_archive(java: Java, jars: tuple[Path, ...], say: Callable[[str], None]) -> Path | None:
    """Return the archive, recorded first if it does not exist, which takes a minute.

    Without an archive everything works, but starts slower. The archive is recorded under another name and
    moved into place whole. Older archives are removed, except the few that were used last: other
    installations of this user may need them. A recording that failed is not tried again for the same Java and
    jars while its mark exists.

    Args:
        java: The Java runtime.
        jars: Delta's jars.
        say: Prints a progress line.

    Returns:
        The archive; None if recording it failed.
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
    except OSError as error:  # a read-only folder or a full disk: fails at once, each time
        problem = str(error)
    if problem is not None:
        say(f"==> not recorded: {problem}. Spark works without, and starts slower")
        return None
    _remove_old(file.parent)
    say(f"==> recorded, {file.stat().st_size / 1e6:,.0f} MB")
    return file


def _record(java: Java, file: Path) -> str | None:
    """Record a rehearsal; return the error, or None."""
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
    """Return a hash of everything that the JVM compares and of everything a new installation would change."""
    facts = [str(java.home), java.release, *sorted(_facts(jars)), *sorted(_facts(_spark_jars()))]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _facts(jars: Iterable[Path]) -> Iterator[str]:
    for jar in jars:
        found = jar.stat()
        # In seconds, as the JVM compares it and as layers of container images store it.
        yield f"{jar} {found.st_size} {int(found.st_mtime)}"


def _spark_jars() -> Iterator[Path]:
    spec = importlib.util.find_spec("pyspark")
    for package in (spec.submodule_search_locations or ()) if spec else ():
        yield from Path(package).glob("jars/*.jar")
