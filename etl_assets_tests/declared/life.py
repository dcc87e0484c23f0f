"""Rounds in a home with two declared pipelines beside orders: files come, a command is run and perhaps
killed, and what is there is compared.

Belongs here: what a round does, by the command line alone. Does not belong here: what must come of it
(`reference.py`, `comparison.py`).
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from etl_assets.failpoints import Failpoint
from etl_assets_tests.commands.home import Home, Running, StepOutcome
from etl_assets_tests.declared import files
from etl_assets_tests.declared.comparison import Comparison
from etl_assets_tests.declared.files import DataFile
from etl_assets_tests.declared.reference import Letter, Pipe
from etl_assets_tests.pipeline import event

FIRST_DAY = dt.date(2026, 2, 2)
DAYS = tuple(FIRST_DAY + dt.timedelta(days=number) for number in range(4))
KILLED = -signal.SIGKILL
MAX_SECONDS = 600.0
STEP_FAILPOINTS = (
    Failpoint.STAGE_AFTER_WRITE, Failpoint.EXCEPTIONS_BEFORE_COMMIT, Failpoint.EXCEPTIONS_AFTER_COMMIT,
    Failpoint.TABLE_BEFORE_COMMIT, Failpoint.TABLE_DURING_COMMIT, Failpoint.TABLE_AFTER_COMMIT,
    Failpoint.TABLE_AFTER_SYNC,
)  # fmt: skip

BACKFILL = """
import datetime as dt, sys
from etl_assets.instance import open_instance
from etl_assets.runs import materialize_days
from etl_assets.settings import load_installation
from etl_assets.steps.step import ReadMode

settings, days = load_installation(), [dt.date.fromisoformat(each) for each in sys.argv[2:]]
with open_instance(settings) as instance:
    materialize_days(settings, instance, days, mode=ReadMode.WHOLE, assets=sys.argv[1].split(","))
"""
"""What a backfill of the UI does for each run: whole days."""


class DeviatedError(AssertionError):
    """Something is not as the docs have it."""


class Life:
    """One home folder, the references of its pipelines, and dice that decide what happens to it."""

    def __init__(self, home: Home, seed: str) -> None:
        self.home = home
        self.root = "data"
        """Whose tables are compared."""
        self._dice = random.Random(seed)
        with_id, without = (self._dice.choice(files.FORMATS) for _ in range(2))
        # Seeds are numbers, but for those of other tests.
        deletes = not seed.isdecimal() or int(seed) % 2 == 0
        self.parts = Pipe(name="parts", has_id=True, format=with_id, deletes=deletes)
        self.visits = Pipe(name="visits", has_id=False, format=without)
        self.pipes = (self.parts, self.visits)
        self._landed: dict[tuple[str, dt.date, str], tuple[DataFile, list[Any]]] = {}
        self._events: set[str] = set()
        self._number = self._record = self._epoch = 0
        self._settled = True
        self._usual_seconds = 20.0
        self._left: list[Running] = []
        places = [
            f"{point}@{name}"
            for pipe in self.pipes
            for name in (pipe.source, pipe.name)
            for point in STEP_FAILPOINTS
        ]
        if deletes:
            places += [f"{point}@parts_tombstones" for point in STEP_FAILPOINTS if point.startswith("table.")]
        self._failpoints = _dealt(
            self._dice, [*places, Failpoint.LEDGER_BEFORE_WRITE, Failpoint.LEDGER_AFTER_WRITE]
        )
        self._actions = _dealt(self._dice, list(ACTIONS))

    def begin(self, **settings: Any) -> None:
        """Write the platform file and the pipelines."""
        self.home.begin(start_date=FIRST_DAY.isoformat(), **settings)
        self.home.landing.mkdir()
        folder = self.home.path / "pipelines"
        folder.mkdir()
        for pipe in self.pipes:
            (folder / f"{pipe.name}.yaml").write_text(json.dumps(pipe.declaration()), "utf-8")
        self.home.history.append(f"formats: {', '.join(f'{pipe.name} {pipe.format}' for pipe in self.pipes)}")

    def end(self) -> None:
        """End what killed commands have left."""
        for running in self._left:
            running.sweep()

    def round(self, name: str | None = None) -> None:
        """Files come, and something is done; most rounds end with everything read, and compared."""
        chosen = name or ("run" if self._number == 0 else str(next(self._actions)))
        self.home.history.append(f"--- {chosen}")
        ACTIONS[chosen](self)
        if not self._settled and self._dice.random() < 0.7:
            self.settle()

    def settle(self) -> None:
        """Read everything by a run that nothing befalls, and compare."""
        if not self._settled:
            self._ended(self.call("run"))
            self._settled = True
        self.compare()

    def compare(self) -> None:
        found = [
            each
            for pipe in self.pipes
            for each in Comparison(home=self.home, pipe=pipe, root=self.root).run()
        ]
        orders = {row["event_id"] for row in self.home.rows("warehouse_rows", ["event_id"], root=self.root)}
        if orders != self._events:
            found.append(f"orders are {sorted(orders)}, must be {sorted(self._events)}")
        if found:
            raise DeviatedError("\n".join([f"{len(found)} deviations:", *found[:25]]))
        self._epoch += 1

    # Files

    def drop(self, most: int = 2) -> None:
        """Some files for each pipeline, and an order now and then."""
        for pipe in self.pipes:
            for _ in range(self._dice.randint(1, most)):
                self._number += 1
                records = self._some_records(self._dice.choice([1, 4, 9]))
                stem = self._dice.choice(["f{:03}", "e{:03}"]).format(self._number)
                self.land(
                    pipe,
                    self._dice.choice(DAYS),
                    files.data_file(self._dice, pipe.format, stem, records),
                    records,
                )
        if self._dice.random() < 0.5:
            self._number += 1
            sent = event(self._number, day=FIRST_DAY)
            self.home.land(FIRST_DAY.isoformat(), f"o{self._number}.jsonl", json.dumps(sent) + "\n")
            self._events.add(sent["event_id"])

    def _some_records(self, number: int) -> list[Any]:
        """Records, some of which repeat or contradict earlier ones."""
        made: list[Any] = []
        known = [each for _, records in self._landed.values() for each in records if isinstance(each, dict)]
        for _ in range(number):
            known_or_not = self._dice.random()
            if known and known_or_not < 0.15:
                made.append(self._dice.choice(known))
                continue
            self._record += 1
            record = files.random_record(self._dice, self._record)
            if known and known_or_not < 0.3 and isinstance(record, dict):
                record["number"] = self._dice.choice(known)["number"]
            made.append(record)
        return made

    def land(self, pipe: Pipe, day: dt.date, file: DataFile, records: Sequence[Any]) -> None:
        """A whole file, renamed into its place; without day folders its day is that of its last change."""
        path = self._put(pipe, day, file.name, file.content)
        pipe.land(file, day, self._epoch)
        self._landed[pipe.name, day, file.name] = (file, list(records))
        self.home.history.append(
            f"    landed: {path.relative_to(self.home.path)}, {len(file.records)} records, day {day}"
        )

    def _put(self, pipe: Pipe, day: dt.date, name: str, content: bytes) -> Path:
        folder = self.home.path / "incoming" / pipe.name
        folder = folder / day.isoformat() if pipe.has_id else folder
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{name}"
        hidden.write_bytes(content)
        noon = dt.datetime.combine(day, dt.time(12), dt.UTC).timestamp() + self._dice.randrange(30_000)
        os.utime(hidden, (noon, noon))
        return hidden.rename(folder / name)

    # Commands

    def call(self, *arguments: str, failpoint: str = "") -> StepOutcome:
        return self.home.call(*arguments, failpoint=failpoint, seconds=MAX_SECONDS)

    def _ended(self, done: StepOutcome, *codes: int) -> StepOutcome:
        if done.code not in (codes or (0,)) or "AssertionError" in done.err:
            raise DeviatedError(f"expected exit code {codes or (0,)}:\n{done}")
        return done

    def _run(self) -> None:
        self.drop()
        done = self._ended(self.call("run"))
        self._usual_seconds = done.seconds
        self._settled = True
        self.compare()

    def _befallen(self, *arguments: str) -> StepOutcome:
        """A command that is killed at some moment, if it lives so long."""
        self._settled = False
        running = self.home.start(*arguments)
        after = self._dice.uniform(0.3, 1.0) * self._usual_seconds
        try:
            done = running.wait(after)
            if done is None:
                running.send(signal.SIGKILL)
                done = running.ended(60)
            self.home.history.append(f"    after {after:.1f} s; exit code {done.code}")
        finally:
            self._left.append(running)
        return self._ended(done, 0, 1, KILLED)

    def _killed_run(self) -> None:
        self.drop()
        self._befallen("run")
        if self._dice.random() < 0.5:
            self.drop(1)

    def _failpoint(self) -> None:
        self.drop()
        self._settled = False
        self._ended(self.call("run", failpoint=next(self._failpoints)), 0, KILLED)
        if self._dice.random() < 0.4:
            self.drop(1)

    def _two_runs(self) -> None:
        self.drop()
        self._settled = False
        one, other = self.home.start("run"), self.home.start("run")
        for running in (one, other):
            self._ended(running.ended(MAX_SECONDS))
            running.sweep()

    def _work(self) -> None:
        self.drop()
        self._settled = False
        running = self.home.start("worker")
        try:
            running.wait(self._dice.uniform(0.2, 1.0) * self._usual_seconds)
            self.drop()
            if self._dice.random() < 0.4:
                running.wait(self._dice.uniform(0.2, 1.0) * self._usual_seconds)
                running.send(signal.SIGKILL)
                self._ended(running.ended(60), KILLED)
                return
            self._wait_until_read(running)
            os.kill(running.process.pid, signal.SIGTERM)
            self._ended(running.ended(90))
        finally:
            running.sweep()

    def _wait_until_read(self, running: Running) -> None:
        deadline = time.monotonic() + MAX_SECONDS
        while running.process.poll() is None and time.monotonic() < deadline:
            read = [
                {row["source_position"] for name in (pipe.source, f"{pipe.source}_rejects")
                 for row in self.home.rows(name, ["source_position"])}
                for pipe in self.pipes
            ]  # fmt: skip
            if all(
                {each.position for each in pipe.arrivals} <= found
                for pipe, found in zip(self.pipes, read, strict=True)
            ):
                return
            time.sleep(0.5)
        raise DeviatedError(f"the worker has not read all that was there:\n{running.err[-3000:]}")

    # Undo and upkeep

    def _reprocess(self) -> None:
        self.drop(1)
        self._settled = False
        pipe = self._dice.choice(self.pipes)
        days = sorted({row["partition_date"] for row in self.home.rows(pipe.source, ["partition_date"])})
        first, last = (
            sorted(self._dice.choices(days, k=2)) if self._dice.random() < 0.5 else (days[0], days[-1])
        )
        self._perhaps_befallen(
            "reprocess", "--from", f"{first}", "--to", f"{last}", "--tables", pipe.name, "--yes"
        )

    def _restore(self) -> None:
        self._settled = False
        pipe = self._dice.choice(self.pipes)
        folder = self.home.folder(pipe.name)
        assert folder is not None  # the first round makes it
        version = self._dice.choice(sorted(int(path.stem) for path in (folder / "_delta_log").glob("*.json")))
        self._perhaps_befallen("tables", "restore", pipe.name, "--to-version", f"{version}", "--yes")

    def _perhaps_befallen(self, *arguments: str) -> None:
        """A command, which the same command completes if something has happened to it."""
        if self._dice.random() < 0.5 and self._befallen(*arguments).code == 0:
            return
        self._ended(self.call(*arguments))

    def _backfill(self) -> None:
        """Days are read as a whole, twice: nothing changes."""
        pipe = self._dice.choice(self.pipes)
        if self._dice.random() < 0.5:
            self.drop(1)
            self._settled = False
        else:
            self.settle()
        assets = self._dice.choice([pipe.source, f"{pipe.source},{pipe.name},dead_letters"])
        for _ in range(2):
            arguments = ("-c", BACKFILL, assets, *map(str, DAYS))
            self._ended(self.home.call(*arguments, program="python", seconds=MAX_SECONDS))
        if self._settled:
            self.compare()

    def _keep_house(self) -> None:
        self.drop()
        self._settled = False
        beside = self.home.start("run") if self._dice.random() < 0.5 else None
        for pipe in self.pipes:
            table = self._dice.choice(
                [
                    pipe.source,
                    pipe.name,
                    f"{pipe.source}_rejects",
                    f"{pipe.name}_rejects",
                    *([f"{pipe.name}_tombstones"] if pipe.deletes else []),
                ]
            )
            if self.home.folder(table):
                self._ended(self.call("tables", "compact", table))
                self._ended(self.call("tables", "vacuum", table, "--delete"))
        if beside:
            self._ended(beside.ended(MAX_SECONDS))
            beside.sweep()

    # Dead letters

    def _open_letters(self, pipe: Pipe) -> list[dict[str, Any]]:
        found = [
            row
            for row in self.home.rows("dead_letters", root=self.root)
            if row["state"] == "open" and row["stage"] in (pipe.source, pipe.name)
        ]
        return sorted(found, key=lambda row: row["dead_letter_id"])

    def _replay(self) -> None:
        """A dead letter of each pipeline, corrected or as it came."""
        if not self._settled:
            self.settle()
        for pipe in self.pipes:
            letters = self._open_letters(pipe)
            if letters:
                self._replay_one(pipe, self._dice.choice(letters))
        self.compare()

    def _replay_one(self, pipe: Pipe, letter: dict[str, Any]) -> None:
        self._record += 1
        arguments = ["dead-letters", "replay", letter["dead_letter_id"]]
        if letter["reason"] not in ("MalformedJson", "MalformedCsv") and self._dice.random() < 0.4:
            record: Any = json.loads(letter["record"])
        else:
            record = files.random_record(self._dice, self._record)
            content = record if isinstance(record, bytes) else json.dumps(record).encode()
            path = self.home.path / f"corrected-{self._record}.json"
            path.write_bytes(content)
            arguments += ["--record", str(path)]
        attempt = letter["attempts"] + 1
        again = pipe.hand_in(letter["dead_letter_id"], letter["partition_date"], attempt, record, self._epoch)
        gets_in = again.reason is None and pipe.row(again.content or "")[1] is None
        self.home.history.append(f"    handed in: {record!r:.200}")
        if gets_in and self._dice.random() < 0.4:
            self._befallen(*arguments)
            done = self._ended(self.call(*arguments), 0, 1)
            if done.code == 1 and "is replayed, not open" not in done.err:
                raise DeviatedError(str(done))
            self._settled = True
            self._ended(self.call("run"))
            return
        self._ended(self.call(*arguments), 0 if gets_in else 1)

    def _discard(self) -> None:
        for pipe in self.pipes:
            for letter in self._open_letters(pipe)[:1]:
                self._ended(
                    self.call("dead-letters", "discard", letter["dead_letter_id"], "--reason", "a test")
                )
                pipe.letters.setdefault(letter["dead_letter_id"], Letter()).discarded_at = letter["attempts"]
        self._settled = False

    # Files that are not as they should be

    def _changed_files(self) -> None:
        """Files that were read change: they grow, shrink, or have other records."""
        if not self._settled:
            self.settle()
        for (name, day, _), (file, records) in self._dice.sample(sorted(self._landed.items(), key=_key), 2):
            pipe = self.parts if name == "parts" else self.visits
            kept = [*records]
            how = self._dice.choice(["longer", "shorter", "other"])
            if how == "longer":
                kept += self._some_records(3)
            elif how == "shorter":
                kept = kept[: len(kept) // 2]
            else:
                kept[self._dice.randrange(len(kept))] = self._some_records(1)[0]
            self.home.history.append(f"    {how}:")
            self.land(pipe, day, files.again(file, pipe.format, kept), kept)
        self._settled = False

    def _cut_off_file(self) -> None:
        """One file comes cut off. Where it cannot be read it is named, and all else goes on; then it comes as
        a whole.
        """
        if not self._settled:
            self.settle()
        self.drop()
        self._settled = False
        pipe, day = self._dice.choice(self.pipes), self._dice.choice(DAYS)
        self._number += 1
        records = [files.random_record(self._dice, self._record + number) for number in range(1, 6)]
        self._record += 6
        whole = files.data_file(self._dice, pipe.format, f"c{self._number:03}", records)
        part = files.cut_off(whole)
        if part is not None:
            self.land(pipe, day, part, records[:-1])
            self._ended(self.call("run"))
            self._settled = True
            self.compare()
        elif whole.name.endswith((".gz", ".parquet")):
            self._put(pipe, day, whole.name, whole.content[: len(whole.content) * 2 // 3])
            self.home.history.append(f"    cut off: {whole.name}, which cannot be read")
            done = self._ended(self.call("run"), 1)
            if whole.name not in done.err:
                raise DeviatedError(f"{whole.name} is not named:\n{done}")
            other = self.visits if pipe is self.parts else self.parts
            self._read_beside(other)
        self.land(pipe, day, whole, records)
        self._settled = False

    def _read_beside(self, pipe: Pipe) -> None:
        if found := Comparison(home=self.home, pipe=pipe, root=self.root).run():
            shown = "\n".join(found[:10])
            raise DeviatedError(f"{pipe.name} is not read beside a pipeline with a bad file:\n{shown}")


def _key(item: tuple[tuple[str, dt.date, str], Any]) -> tuple[str, dt.date, str]:
    return item[0]


ACTIONS: dict[str, Callable[[Life], None]] = {
    "run": Life._run,
    "killed run": Life._killed_run,
    "failpoint": Life._failpoint,
    "failpoint again": Life._failpoint,
    "two runs": Life._two_runs,
    "worker": Life._work,
    "reprocess": Life._reprocess,
    "restore": Life._restore,
    "replay": Life._replay,
    "discard": Life._discard,
    "backfill": Life._backfill,
    "upkeep": Life._keep_house,
    "changed files": Life._changed_files,
    "cut off file": Life._cut_off_file,
}


def _dealt(dice: random.Random, cards: Sequence[Any]) -> Iterator[Any]:
    """The cards in random order, over and over: each once before one comes again."""
    while True:
        yield from dice.sample(cards, len(cards))
