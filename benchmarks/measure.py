"""Running a script in a fresh process and measuring the whole tree of processes it starts.

The figures of `Measured` are taken from the first mark to a later one, or from the start of the process.
Interleaving and medians are here as well; what is compared with what is up to the cases.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.marks import MARKS_FILE, SERVERS, Mark, read_marks
from benchmarks.processes import machine_cpu_seconds, tree_cpu_seconds, tree_resident_bytes

_SAMPLE_SECONDS = 0.25
STARTED = "started"


class ScriptFailed(Exception):
    """A side of a case ended with an error; the message holds the end of what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run of a script.

    Attributes:
        marks: Its marks by name; `STARTED` is the start of the process.
        resident: Samples of (monotonic time, resident bytes of all its processes and servers).
        load: Cores that other work kept busy meanwhile.
    """

    marks: Mapping[str, Mark]
    resident: tuple[tuple[float, int], ...]
    load: float

    def wall_seconds(self, until: str, since: str = STARTED) -> float:
        return self.marks[until].clock - self.marks[since].clock

    def cpu_seconds(self, until: str, since: str = STARTED) -> float:
        return self.marks[until].cpu_seconds - self.marks[since].cpu_seconds

    def peak_resident_mib(self, until: str) -> float:
        sizes = (size for clock, size in self.resident if clock <= self.marks[until].clock)
        return max(sizes, default=0) / (1 << 20)


class Load:
    """What other processes use from now on."""

    def __init__(self) -> None:
        self._clock, self._used = time.monotonic(), self._cpu_seconds()

    def seconds(self) -> float:
        """How long it has been watched."""
        return time.monotonic() - self._clock

    def cpu_seconds(self) -> float:
        """What the machine has used since, less this process."""
        return self._cpu_seconds() - self._used

    def cores(self) -> float:
        """How many cores were kept busy."""
        return max(0.0, self.cpu_seconds()) / self.seconds()

    @staticmethod
    def _cpu_seconds() -> float:
        return machine_cpu_seconds() - time.process_time()


def run_script(
    name: str,
    arguments: Mapping[str, Any],
    environment: Mapping[str, str],
    *,
    python: str = sys.executable,
    cores: Collection[int] | None = None,
    servers: Collection[int] = (),
) -> Measured:
    """Run `benchmarks.scripts.<name>` with its arguments as JSON, in this Python or a peer's.

    What was written before, such as a copy of tables, is on the disk when it starts, so that its fsyncs pay
    for its own. With `cores`, it and all it starts run on these only. `servers` are the numbers of processes
    that run already and work for
    it: what they and all they start use from now on counts as its own.

    Raises:
        ScriptFailed: it did not end well.
    """
    pinned = [] if cores is None else ["taskset", "--cpu-list", ",".join(map(str, sorted(cores)))]
    with tempfile.TemporaryDirectory(prefix="etl-assets-bench-") as folder:
        marks_file, log = Path(folder, "marks"), Path(folder, "log")
        command = [*pinned, python, "-m", f"benchmarks.scripts.{name}", json.dumps(arguments)]
        os.sync()
        load, clock, before = Load(), time.monotonic(), sum(map(tree_cpu_seconds, servers), 0.0)
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env={**environment, MARKS_FILE: str(marks_file), SERVERS: " ".join(map(str, servers))},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                resident = tuple(_samples(process, servers))
            finally:
                process.kill()
                process.wait()
        seconds, others = load.seconds(), load.cpu_seconds()
        if process.returncode != 0:
            raise ScriptFailed(f"{name} ended with {process.returncode}:\n{_end_of(log)}")
        marks = read_marks(marks_file)
    used = max((found.cpu_seconds for found in marks.values()), default=before)
    busy = max(0.0, others - (used - before)) / seconds
    start = Mark(name=STARTED, clock=clock, cpu_seconds=before)
    return Measured(marks={STARTED: start, **marks}, resident=resident, load=busy)


def interleaved(runs: int, sides: Mapping[str, Callable[[], Measured]]) -> dict[str, list[Measured]]:
    """Run the sides in turns, each `runs` times; every other turn in reverse order."""
    measured: dict[str, list[Measured]] = {name: [] for name in sides}
    for number in range(runs):
        names = list(sides)
        for name in names if number % 2 == 0 else names[::-1]:
            print(f"  run {number + 1} of {runs}: {name} ...", end=" ", file=sys.stderr, flush=True)
            began = time.monotonic()
            measured[name].append(sides[name]())
            print(f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return measured


def median(runs: Sequence[Measured], figure: Callable[[Measured], float]) -> float:
    """The median of a figure."""
    return statistics.median(figure(run) for run in runs)


def empty_folder(path: Path) -> Path:
    """The folder, with nothing in it; the disk has finished what earlier work left, so that no side pays for
    another.
    """
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    os.sync()
    return path


def _samples(process: subprocess.Popen[bytes], servers: Collection[int]) -> Iterator[tuple[float, int]]:
    while process.poll() is None:
        yield time.monotonic(), sum(map(tree_resident_bytes, (process.pid, *servers)))
        time.sleep(_SAMPLE_SECONDS)


def _end_of(log: Path) -> str:
    return log.read_text("utf-8", errors="replace")[-4_000:]
