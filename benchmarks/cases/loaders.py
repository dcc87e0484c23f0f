"""loaders: events from JSONL files into a Delta table, by the platform and by loaders of others, each in a
fresh process.

Three pieces of work: 1,000,000 events into nothing, 10,000 more of them, and a run that finds nothing new.
Ids come once each, because dlt fails on an id that comes twice in a load. The platform's side is landing to
raw_events, and for the run without news the whole platform as `etl-assets run` looks at it. Dagster's IO
manager has no upsert, and delta-rs by hand does not know which files it has read: they have no figures where
they cannot do the work.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import etl_assets
from benchmarks import scripts
from benchmarks.input import DAYS, FIRST_DAY, SEED
from benchmarks.made_history import copied
from benchmarks.measure import Measured, empty_folder, interleaved, median, run_script
from benchmarks.options import Options, script_environment
from benchmarks.peers import REQUIREMENTS, Peer, python_of
from benchmarks.report import Figure, figure
from etl_assets.orders.generator.generate import EventsSpec, generate

CASE = "loaders"
MORE = 10_000
NOTHING_TARGET = 1.0
UPSERT_TARGET = 1.0
PLATFORM = "platform"
LAST_DAY = FIRST_DAY + dt.timedelta(days=DAYS - 1)
_SCRIPTS = {
    PLATFORM: "load_by_platform",
    Peer.DLT: "dlt_load",
    Peer.DELTA_RS: "delta_rs_merge",
    Peer.DAGSTER: "dagster_io_manager",
}
_JUDGED = ("wall_seconds", "cpu_seconds")
LOAD, UPSERT, NOTHING = "load", "upsert", "nothing"


class WrongRows(Exception):
    """A side did not end with the rows it should: its time says nothing."""


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    loaders = Loaders(options)
    sides: dict[str, Callable[[], Measured]] = {}
    for name in _SCRIPTS:
        sides[f"{LOAD} {name}"] = partial(loaders.load, name)
    for name in (PLATFORM, Peer.DLT, Peer.DELTA_RS):
        sides[f"{UPSERT} {name}"] = partial(loaders.upsert, name)
    for name in (PLATFORM, Peer.DLT):
        sides[f"{NOTHING} {name}"] = partial(loaders.find_nothing, name)
    for name in (PLATFORM, Peer.DLT, Peer.DELTA_RS):
        loaders.keep_loaded(name)
    measured = interleaved(options.runs, sides)
    loaders.clean_up()
    return _figures(measured)


class Loaders:
    """The loaders at work, each in a home folder whose path is always the same: dlt knows files by it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._landing, self._more = _unique_input(options.folder, options.events)

    def load(self, name: str, *, everything: bool = False) -> Measured:
        """Load all events into nothing; `everything`: the platform's other tables after it."""
        home = empty_folder(self._home(name))
        copied(self._landing, home / "landing")
        return self._run(name, self._landing, self._options.events, everything=everything)

    def keep_loaded(self, name: str) -> None:
        """Have a home that has loaded all, made once for each size and loader; what an older loader made
        goes.
        """
        if not self._kept(name).exists():
            for older in self._kept(name).parent.glob(f"loaded-{name}-{self._options.events}-*"):
                shutil.rmtree(older)
            print(f"  loading {self._options.events:,} events by {name}, once ...", file=sys.stderr)
            self.load(name, everything=True)
            copied(self._home(name), making := self._kept(name).with_name(f".{self._kept(name).name}"))
            making.rename(self._kept(name))

    def upsert(self, name: str) -> Measured:
        """Load `MORE` events into what has loaded all."""
        self.keep_loaded(name)
        home = copied(self._kept(name), self._home(name))
        for file in self._more.glob("2*/*.jsonl"):
            shutil.copy(file, home / "landing" / file.parent.name)
        return self._run(name, self._more, self._options.events + MORE)

    def find_nothing(self, name: str) -> Measured:
        """Look for news where there is none."""
        home = copied(self._kept(name), self._home(name))
        if name != PLATFORM:
            return self._run(name, self._landing, self._options.events)
        environment = {**script_environment(), "ETL_ASSETS_HOME": str(home)}
        return run_script("nothing_by_platform", {}, environment)

    def clean_up(self) -> None:
        """Remove what no later run needs."""
        shutil.rmtree(self._options.folder / CASE, ignore_errors=True)

    def _home(self, name: str) -> Path:
        return self._options.folder / CASE / name

    def _kept(self, name: str) -> Path:
        return self._options.folder / "input" / f"loaded-{name}-{self._options.events}-{_digest(name)}"

    def _run(self, name: str, files: Path, rows: int, *, everything: bool = False) -> Measured:
        home = self._home(name)
        told: dict[str, Any] = {
            "home": str(home),
            "landing": str(home / "landing"),
            "files": sorted(map(str, files.glob("2*/*.jsonl"))),
            "everything": everything,
        }
        python = sys.executable
        environment = {**script_environment(), "RUNTIME__DLTHUB_TELEMETRY": "false"}
        if name == PLATFORM:
            told["spark"] = self._options.spark_settings(home / "spark")
            # As a run of the platform does: over the days that have new files, and short where these are
            # small.
            days = {Path(file).parent.name for file in told["files"]}
            told |= {"days": sorted(days), "quick": days == {LAST_DAY.isoformat()}}
        else:
            python = python_of(Peer(name), self._options.folder)
        measured = run_script(_SCRIPTS[name], told, environment, python=python)
        if (found := measured.marks["verified"].figures["rows"]) != rows:
            raise WrongRows(f"{name} ended with {found:,} rows, not {rows:,}")
        return measured


def _digest(name: str) -> str:
    """Of what makes a loader's tables: the platform's code, or a peer's packages; and the script."""
    script = Path(*scripts.__path__, f"{_SCRIPTS[name]}.py")
    package = Path(*etl_assets.__path__)
    code = sorted(package.rglob("*.py")) if name == PLATFORM else [REQUIREMENTS / f"{name}.txt"]
    return hashlib.sha256(b"".join(file.read_bytes() for file in (script, *code))).hexdigest()[:8]


def _unique_input(folder: Path, events: int) -> tuple[Path, Path]:
    """Landing folders: so many events of 30 days, each id once, and `MORE` events of the last day."""
    landing, more = folder / "input" / f"unique-{events}", folder / "input" / f"unique-more-{MORE}"
    for target, spec in (
        (landing, EventsSpec(events=events, start=FIRST_DAY, days=DAYS, seed=SEED, files_per_day=2)),
        (more, EventsSpec(events=MORE, start=LAST_DAY, days=1, seed=SEED + 1)),
    ):
        if not (target / "_complete").exists():
            print(f"  generating {spec.events:,} events, once ...", file=sys.stderr)
            generate(spec, target)
            (target / "_complete").touch()
    return landing, more


def _figures(measured: Mapping[str, list[Measured]]) -> list[Figure]:
    load = median([run for runs in measured.values() for run in runs], lambda run: run.load)
    rows = []
    for side, runs in measured.items():
        work, _, name = side.partition(" ")
        if name == PLATFORM:
            continue
        ours = measured[f"{work} {PLATFORM}"]
        for metric, value in (
            ("wall_seconds", lambda run: run.wall_seconds("done")),
            ("cpu_seconds", lambda run: run.cpu_seconds("done")),
            ("peak_resident_mib", lambda run: run.peak_resident_mib("done")),
        ):
            target = _target(work, metric, name)
            label = f"{work}_{metric}_{name.replace('-', '_')}"
            rows.append(
                figure(CASE, label, median(ours, value), median(runs, value), load=load, target=target)
            )
    return rows


def _target(work: str, metric: str, name: str) -> float | None:
    if work == NOTHING and metric in _JUDGED:
        return NOTHING_TARGET
    if (work, metric, name) == (UPSERT, "wall_seconds", Peer.DLT):
        return UPSERT_TARGET
    return None
