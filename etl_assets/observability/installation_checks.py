"""Checks of the installation: write access, landing folder, writer locks, Dagster instance. They need valid
settings.

The checks create nothing but a probe file, which they remove. A folder that the first run will create is
checked only for whether it can be created.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import socket
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.engine.ipc import status
from etl_assets.observability.findings import Finding, fail, ok, warn
from etl_assets.observability.machine_checks import SKEW_SECONDS, nearest
from etl_assets.observability.pending import find_unfinished
from etl_assets.pipelines.pipeline_file import FIX_OF_NOT_LISTED
from etl_assets.processes import started_at
from etl_assets.settings import expect_landing_folder
from etl_assets.sources.landing import Folders
from etl_assets.stack.running import read_running, servers_folders
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.placement.domains import Placement
    from etl_assets.settings import Settings

WRITING, LANDING_FOLDER, LOCKS, INSTANCE = "write access", "landing folder", "locks", "dagster instance"
INSTALLATION, PIPELINES = "installation", "pipelines"
STORES, ENGINE, REPLICAS, UNFINISHED = "object stores", "engine", "replicas", "unfinished work"
SERVERS = "servers"
_SHOWN = 5


def check_writing(folders: Iterable[tuple[str, Path]]) -> Iterator[Finding]:
    """Check that files can be written, fsynced, renamed and removed in each folder.

    Their modification time must agree with the clock.
    """
    for what, folder in folders:
        if folder.is_dir():
            yield _probe(what, folder)
        elif os.access(nearest(folder), os.W_OK | os.X_OK) and nearest(folder).is_dir():
            yield ok(WRITING, f"{what} {folder}: not there yet, can be made")
        else:
            yield fail(
                WRITING,
                f"{what} {folder}: not there, and cannot be made in {nearest(folder)}",
                f"make it, or let this user write in {nearest(folder)}",
            )


def check_stores(placement: Placement) -> Iterator[Finding]:
    """Check that each domain on an object store answers and is the domain it was."""
    for site in placement.sites:
        if site.is_folder:
            continue
        if (problem := placement.unusable(site)) is None:
            yield ok(STORES, f"domain {site.name} {site.root}")
        else:
            yield fail(
                STORES,
                f"domain {site.name}: {problem}",
                "see that the bucket is there, and that this process has the store's credentials and"
                " endpoint in its environment",
            )


def check_replicas(placement: Placement) -> Iterator[Finding]:
    """Check that what each replica of a mirrored table has published is part of what was acknowledged."""
    if len(placement.sites) < 2:
        return
    seen, problems = 0, 0
    for table in placement.catalog.every_name():
        mirrored = platform_table(table, placement.reader()).replication
        if mirrored is None or mirrored.locator() is None:
            continue  # The table is not mirrored yet. Asking whether it exists might adopt one domain's copy.
        seen += 1
        for domain, problem in mirrored.forked().items():
            problems += 1
            yield fail(
                REPLICAS,
                f"{table} in {domain} {problem}",
                "find out which history counts (docs/operations.md, A fork), then `etl-assets tables repair"
                f" {table}`",
            )
    for why in placement.catalog.unlisted():
        problems += 1
        yield warn(REPLICAS, why, "bring the domain back: tables of your own assets may have gone unchecked")
    if not problems:
        yield ok(REPLICAS, f"{seen:,} mirrored tables; `etl-assets tables verify` looks at logs and files")


def check_unfinished(settings: Settings) -> Iterator[Finding]:
    """Check that every table has consumed its inputs and has lost no rows since."""
    undone = tuple(find_unfinished(settings.placement().reader(), settings.start_date).sentences())
    for sentence, fix in undone:
        yield warn(UNFINISHED, sentence, f"{fix}; a run or a worker that is at work does it by itself")
    if not undone:
        yield ok(UNFINISHED, "none: every table is up to date with its inputs")


def _probe(what: str, folder: Path) -> Finding:
    path = folder / f".doctor-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    renamed = path.with_suffix(".renamed")
    try:
        with path.open("wb") as file:
            file.write(b"probe")
            file.flush()
            os.fsync(file.fileno())
        path.rename(renamed)
        skew = renamed.stat().st_mtime - time.time()
    except OSError as error:
        return fail(
            WRITING,
            f"{what} {folder}: {error.strerror}",
            "let this user write there; mount it without `ro`; make room",
        )
    finally:
        for leftover in (path, renamed):
            leftover.unlink(missing_ok=True)
    if abs(skew) > SKEW_SECONDS:
        return warn(
            WRITING,
            f"{what} {folder}: files get a time {skew:+,.0f} s from this machine's clock",
            "synchronize the clocks of this machine and of the file server: files are read by their age",
        )
    return ok(WRITING, f"{what} {folder}")


def check_landing(settings: Settings, today: dt.date) -> Iterator[Finding]:
    """Check that the landing folder and its days are readable and contain no entries that are never read."""
    folder = settings.landing_path
    expect_landing_folder(settings)
    if not folder.is_dir():
        yield warn(
            LANDING_FOLDER, f"{folder} is not there", "make it, or set landing.path in the platform file"
        )
        return
    folders = Folders(source="landing", path=folder)
    strangers = folders.strangers()
    days = sorted(day for day, _ in folders.days())
    closed = [day.isoformat() for day in days if not os.access(folder / day.isoformat(), os.R_OK | os.X_OK)]
    outside = [day.isoformat() for day in days if not settings.start_date <= day <= today]
    if closed:
        yield fail(
            LANDING_FOLDER, f"{_some(closed)} cannot be read", f"let this user read the folders in {folder}"
        )
    if strangers:
        yield warn(
            LANDING_FOLDER,
            f"{_some(strangers)} in {folder}: no day's folder, nothing in there is read",
            "put files into folders named YYYY-MM-DD; set other things aside with a leading `_` or `.`",
        )
    if outside:
        yield warn(
            LANDING_FOLDER,
            f"{_some(outside)} have no partition: days go from {settings.start_date} to today",
            "move the files to the day they arrived on, or set an earlier start_date in the platform file",
        )
    if not (closed or strangers or outside):
        yield ok(LANDING_FOLDER, f"{folder}, {len(days):,} {'day' if len(days) == 1 else 'days'}")


def check_pipelines(settings: Settings) -> Iterator[Finding]:
    """Check that every pipeline file can be used. One that cannot is left out; the other pipelines run."""
    found = settings.installed()
    if found.unlisted is not None:
        yield fail(
            PIPELINES,
            f"{found.unlisted}: no pipeline in there runs",
            FIX_OF_NOT_LISTED,
        )
    for file in found.broken:
        first, *others = file.problems
        more = f", and {len(others):,} more" if others else ""
        yield fail(
            PIPELINES,
            f"{file.located(first)}{more}",
            f"{first.fix}; `etl-assets pipelines validate {file.argument}`",
        )
    usable = len(found.files) - len(found.broken)
    if not found.broken and found.unlisted is None:
        yield ok(PIPELINES, f"{usable:,} {'file' if usable == 1 else 'files'}")


def check_locks(locks: Path) -> Iterator[Finding]:
    """Report which tables are being written, and warn if the Spark driver of a dead writer still runs."""
    held, left = [], []
    for file in sorted(locks.glob("*.lock")):
        holder = _holder(file)
        if holder and _is_held(file):
            held.append(f"{file.stem} by process {holder.get('pid', '?')} on {holder.get('host', '?')}")
        elif holder and _driver_runs(holder):
            left.append(
                f"{file.stem}: driver {holder['driver_pid']} of the dead process {holder.get('pid', '?')}"
            )
    if left:
        yield warn(
            LOCKS,
            f"a writer died and its Spark driver still runs: {'; '.join(left)}",
            "wait a moment, or end that driver: the next writer waits for it",
        )
    yield ok(LOCKS, f"being written now: {'; '.join(held)}" if held else "no table is being written")


def _holder(file: Path) -> dict[str, Any]:
    """Return what the holder wrote into the lock file; empty once the lock is released."""
    try:
        return json.loads(file.read_text("utf-8") or "{}")
    except (OSError, ValueError):
        return {}


def _is_held(file: Path) -> bool:
    with file.open("rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _driver_runs(holder: dict[str, Any]) -> bool:
    pid = holder.get("driver_pid")
    if pid is None or holder.get("host") != socket.gethostname():
        return False
    return started_at(pid) == holder.get("driver_started_at") is not None


def check_instance(settings: Settings) -> Iterator[Finding]:
    """Check that the Dagster instance can be opened and queried.

    An instance that was never used is not created.
    """
    home = settings.dagster_home
    if not (home / "dagster.yaml").is_file():
        yield ok(INSTANCE, f"{home} is not there yet: the first run makes it")
        return
    from etl_assets.instance import open_instance

    with open_instance(settings) as instance:
        storage = type(instance.event_log_storage).__name__
        yield ok(INSTANCE, f"{home}, {instance.get_runs_count():,} runs, events in {storage}")


def check_engine(home: Path) -> Iterator[Finding]:
    """Report the state of the warm engine. A missing engine is not a fault."""
    found = status(home)
    if found is None:
        yield ok(ENGINE, "none: each run starts a Spark of its own")
        return
    state = (
        "ready" if found.get("ready") else "being started: runs start a Spark of their own until it is ready"
    )
    memory = f"{found.get('resident_bytes', 0) / (1 << 30):.1f} GiB"
    yield ok(
        ENGINE, f"{state}; process {found.get('pid')}, Spark {memory}, {found.get('runs')} runs under way"
    )


def check_servers(home: Path) -> Iterator[Finding]:
    """Report which servers of the demo over all servers run; nothing where there was no such demo."""
    folders = [folder for folder in servers_folders(home) if folder.is_dir()]
    found = [each for folder in folders for each in read_running(folder)]
    for each in found:
        since = each.since.isoformat().replace("+00:00", "Z")
        yield ok(
            SERVERS,
            f"{each.name} on {each.address} since {since}; process {each.pid}, ends with process"
            f" {each.owner}",
        )
    if folders and not found:
        yield ok(SERVERS, "none of the demo's (`etl-assets demo --stack full`) runs")


def _some(names: Iterable[str]) -> str:
    all_names = list(names)
    more = f" and {len(all_names) - _SHOWN:,} more" if len(all_names) > _SHOWN else ""
    return ", ".join(all_names[:_SHOWN]) + more
