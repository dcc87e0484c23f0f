"""Checks of the machine: Java, Delta's jars, packages, disk space, clock. They need no valid settings."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from etl_assets.delta.log.entries import entry_path, latest_version
from etl_assets.errors import RuntimeMissing
from etl_assets.observability.findings import Finding, fail, ok, warn
from etl_assets.runtime.classes import archive_file, failed_mark
from etl_assets.runtime.jars import delta_jars
from etl_assets.runtime.java import OLDEST_VERSION, Java, ask_version, find_java

JAVA, JARS, PACKAGES, DISK, CLOCK = "java", "jars", "packages", "disk", "clock"
FAIL_BELOW_BYTES = 1 << 30
WARN_BELOW_BYTES = 5 << 30
WARN_BELOW_FREE_INODES = 0.01
SKEW_SECONDS = 5.0
_PLAUSIBLE_FROM = 1_767_225_600.0
"""2026-01-01, UTC: no installation of this software is older."""
_DISTRIBUTION = "etl-assets"
_MAIN_PACKAGES = (
    "dagster",
    "dagster-pyspark",
    "pyspark",
    "delta-spark",
    "deltalake",
    "pyarrow",
    "pandas",
    "pandera",
)
_PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?==(?P<version>[^;\s]+)$")


def check_java() -> Iterator[Finding]:
    """Check that Java is installed and recent enough."""
    java = find_java()
    named = os.environ.get("JAVA_HOME")
    if named and (
        (meant := ask_version(Path(named) / "bin" / "java")) is None or meant.version < OLDEST_VERSION
    ):
        what = "no working Java" if meant is None else f"Java {meant.release}, which is too old"
        yield warn(
            JAVA,
            f"JAVA_HOME = {named} holds {what}; Java {java.release} in {java.home} is used instead",
            f"set JAVA_HOME to {java.home}, or unset it",
        )
    else:
        yield ok(JAVA, f"Java {java.release} in {java.home}")


def check_jars() -> Iterator[Finding]:
    """Check that Delta's jars have the pinned content, and that an archive of their classes exists."""
    jars = delta_jars(thorough=True)
    yield ok(JARS, f"{', '.join(jar.name for jar in jars)} in {jars[0].parent}, sums checked")
    with suppress(RuntimeMissing):  # without Java, which has a check of its own
        yield from _check_archive(find_java(), jars)


def _check_archive(java: Java, jars: tuple[Path, ...]) -> Iterator[Finding]:
    if archive_file(java, jars).is_file():
        return
    none = "there is no archive of classes for this Java and these jars, so Spark starts slower"
    if (mark := failed_mark(java, jars)).is_file():
        why = mark.read_text("utf-8").strip()
        yield warn(JARS, f"{none}: {why}", fix=f"fix that, remove {mark}, run `etl-assets setup`")
    else:
        yield warn(JARS, none, fix="run `etl-assets setup`, which records one")


def check_packages() -> Iterator[Finding]:
    """Check that the main packages have the versions this software was tested with."""
    pins = dict(_pins())
    seen, wrong = [f"Python {sys.version.split()[0]}"], []
    for name in _MAIN_PACKAGES:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{name} is not installed")
            continue
        seen.append(f"{name} {version}")
        if version != pins.get(name, version):
            wrong.append(f"{name} is {version} instead of {pins[name]}")
    if wrong:
        yield fail(
            PACKAGES,
            "; ".join(wrong),
            "install the package again with its dependencies: `make setup` in a checkout, or its wheel by"
            " pip",
        )
    else:
        yield ok(PACKAGES, ", ".join(seen))


def check_disk(folders: Iterable[tuple[str, Path]]) -> Iterator[Finding]:
    """Check that each folder's file system has room.

    A missing folder is checked where it would be created.
    """
    for what, folder in folders:
        there = nearest(folder)
        free = shutil.disk_usage(there).free
        detail = f"{what} {folder}: {free / (1 << 30):,.1f} GiB free"
        fix = f"make room on the file system of {there}, or move {what} to another"
        statistics = os.statvfs(there)
        if free < FAIL_BELOW_BYTES:
            yield fail(DISK, detail, fix)
        elif free < WARN_BELOW_BYTES:
            yield warn(DISK, detail, fix)
        elif statistics.f_files and statistics.f_favail < statistics.f_files * WARN_BELOW_FREE_INODES:
            yield warn(DISK, f"{detail}, but only {statistics.f_favail:,} more files", fix)
        else:
            yield ok(DISK, detail)


def check_clock(tables: Path, now: float | None = None) -> Iterator[Finding]:
    """Check that the clock is plausible: neither before this software nor before the newest commit.

    Args:
        tables: Folder of a domain's tables.
        now: Seconds since 1970; the clock's by default.
    """
    now = time.time() if now is None else now
    shown = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now))
    fix = "set the clock (time synchronization): days of arrival and event times are judged by it"
    newest = max((_newest_commit(table) for table in tables.glob("*/*")), default=0.0)
    if now < _PLAUSIBLE_FROM:
        yield fail(CLOCK, f"it says {shown} UTC, which is past", fix)
    elif newest > now + SKEW_SECONDS:
        ahead = newest - now
        yield fail(CLOCK, f"it says {shown} UTC, and the newest commit is {ahead:,.0f} s later", fix)
    else:
        yield ok(CLOCK, f"{shown} UTC")


def nearest(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _newest_commit(table: Path) -> float:
    version = latest_version(table)
    return entry_path(table, version).stat().st_mtime if version >= 0 else 0.0


def _pins() -> Iterator[tuple[str, str]]:
    """Yield the packages that this one pins exactly, with their versions."""
    try:
        lines = importlib.metadata.requires(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for line in lines:
        if pin := _PIN.match(line):
            yield pin["name"], pin["version"]
