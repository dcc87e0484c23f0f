"""increment: 10,000 events with random ids into a history of 1,000,000 and of 10,000,000, beside dlt's upsert
of as many.

The platform runs in a session that is warm, dlt in a fresh process, as it is run. Histories are made once and
kept; each run begins with a copy.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import pairwise
from statistics import median as median_of

from benchmarks.cases.loaders import MORE, Loaders
from benchmarks.made_history import History, copied, kept_history
from benchmarks.measure import Measured, empty_folder, interleaved, median, run_script
from benchmarks.options import Options, script_environment
from benchmarks.peers import Peer
from benchmarks.report import Figure, figure
from benchmarks.scripts.increment_by_platform import STAGES

CASE = "increment"
GROWTH_TARGET = 1.2
DLT_TARGET = 0.5
LONG, SHORT, DLT = "long", "short", "dlt"
LONGER = 10
"""How many times as many events the long history has, on as many times the days."""
_DAYS = 30
_WARM_UPS, _TURNS = 4, 5
_INCREMENT = MORE


class NothingDone(Exception):
    """A step did not insert the rows it should: its time says nothing."""


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    histories = {
        SHORT: History(days=_DAYS, events_a_day=options.events // _DAYS),
        LONG: History(days=_DAYS * LONGER, events_a_day=options.events // _DAYS),
    }
    loaders = Loaders(options)
    loaders.keep_loaded(Peer.DLT)
    sides: dict[str, Callable[[], Measured]] = {
        "platform": lambda: _run_platform(options, histories),
        DLT: lambda: loaders.upsert(Peer.DLT),
    }
    measured = interleaved(options.runs, sides)
    loaders.clean_up()
    shutil.rmtree(options.folder / CASE, ignore_errors=True)
    return _figures(measured["platform"], measured[DLT])


def _run_platform(options: Options, histories: dict[str, History]) -> Measured:
    work = empty_folder(options.folder / CASE)
    homes = {
        name: str(copied(kept_history(options, history), work / name)) for name, history in histories.items()
    }
    measured = run_script(
        "increment_by_platform",
        {
            "homes": homes,
            "days": {name: history.all_days[-1].isoformat() for name, history in histories.items()},
            "events": _INCREMENT,
            "warm_ups": _WARM_UPS,
            "turns": _TURNS,
            "spark": options.spark_settings(work / "spark"),
        },
        script_environment(),
    )
    for name, mark in measured.marks.items():
        inserted = mark.figures.get("inserted", _INCREMENT)
        if not name.endswith("order_status_view") and inserted != _INCREMENT:
            raise NothingDone(f"{name}: {inserted} rows, not {_INCREMENT}")
    return measured


def _figures(ours: list[Measured], dlt: list[Measured]) -> list[Figure]:
    load = median([*ours, *dlt], lambda run: run.load)

    def of(side: str, since: str, until: str, kind: str) -> float:
        """The median over turns and runs."""
        return median_of(
            getattr(run, kind)(f"{side} {turn} {until}", f"{side} {turn} {since}")
            for run in ours
            for turn in range(_TURNS)
        )

    rows = []
    for before, stage in [*pairwise(("begins", *STAGES)), ("begins", STAGES[-1])]:
        name = "all_stages" if before == "begins" and stage == STAGES[-1] else stage
        for kind in ("wall_seconds", "cpu_seconds"):
            target = GROWTH_TARGET if stage == STAGES[0] else None
            long, short = of(LONG, before, stage, kind), of(SHORT, before, stage, kind)
            rows.append(figure(CASE, f"{name}_{kind}_grown", long, short, load=load, target=target))
    for kind in ("wall_seconds", "cpu_seconds"):
        theirs = median(dlt, lambda run, kind=kind: getattr(run, kind)("done"))
        step = of(SHORT, "begins", STAGES[0], kind)
        target = DLT_TARGET if kind == "wall_seconds" else None
        rows.append(figure(CASE, f"{STAGES[0]}_{kind}_dlt", step, theirs, load=load, target=target))
    return rows
