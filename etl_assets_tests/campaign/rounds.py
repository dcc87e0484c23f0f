"""A home folder's life in rounds: files come, a command is run and perhaps killed, and what is there is
compared.

Belongs here: what a round does, by the command line alone. Does not belong here: what must come of it
(`reference.py`, `comparison.py`).
"""

from __future__ import annotations

import datetime as dt
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from etl_assets_tests.campaign import files
from etl_assets_tests.campaign.comparison import Comparison
from etl_assets_tests.campaign.judge import MAX_RECORD_BYTES, Event, Order, Refusal, judge_payload, parse
from etl_assets_tests.campaign.kills import MAX_SECONDS, TABLES, at_some_moment, befall
from etl_assets_tests.campaign.lines import CUSTOMERS, Lines
from etl_assets_tests.campaign.reference import DeadLetter, Reference
from etl_assets_tests.commands.home import Home, Running, StepOutcome

FIRST_DAY = dt.date(2026, 2, 2)
DAYS = tuple(FIRST_DAY + dt.timedelta(days=number) for number in range(5))
KILLED = -signal.SIGKILL
REPLAYED_AS_THEY_CAME = ("UnknownEventType", "UnsupportedSchemaVersion")

T = TypeVar("T")


class DeviatedError(AssertionError):
    """Something is not as the docs have it."""


class Life:
    """One home folder, its reference, and dice that decide what happens to it."""

    def __init__(self, home: Home, seed: str) -> None:
        self.home = home
        self.reference = Reference()
        self._dice = random.Random(seed)
        self._lines = Lines(random.Random(self._dice.random()), "h")
        self._actions = _dealt(self._dice, list(ACTIONS))
        self._number = 0
        self._usual_seconds = 20.0
        self._left: list[Running] = []
        self._settled = True
        """Whether the last command was one that read everything."""

    def begin(self) -> None:
        """Write the platform file and the reference data."""
        self.home.begin(
            start_date=FIRST_DAY.isoformat(),
            landing={"settle_seconds": 0, "max_record_bytes": MAX_RECORD_BYTES},
        )
        table = self.home.landing / "_reference" / "customers.csv"
        table.parent.mkdir(parents=True)
        rows = [f'{name},"{region}"' if region else f"{name}," for name, region in CUSTOMERS.items()]
        table.write_text("\n".join(["customer_id,customer_region", *rows, ""]), "utf-8")

    def end(self) -> None:
        """End what killed commands have left."""
        for running in self._left:
            running.sweep()

    def round(self) -> None:
        """Files come, and something is done. Most rounds end with everything read, and compared."""
        name = next(self._actions)
        if self._number == 0:
            name = "run"  # to undo, replay and change something, something has to be there
        self.home.history.append(f"--- {name}")
        ACTIONS[name](self)
        if not self._settled and self._dice.random() < 0.7:
            self.settle()

    def settle(self) -> None:
        """Read everything by a run that nothing befalls, and compare."""
        if not self._settled:
            self.reference.disturbed()
            self._ended(self.home.call("run", seconds=MAX_SECONDS))
            self._settled = True
        self.compare()

    def compare(self) -> None:
        """Compare with the reference; from here on, what comes is later than what is there."""
        if found := Comparison(home=self.home, reference=self.reference).run():
            shown = "\n".join(found[:25])
            raise DeviatedError(f"{len(found)} deviations:\n{shown}")
        self.reference.next_epoch()

    # Files

    def _drop(self, most: int = 3, days: Sequence[dt.date] = DAYS) -> None:
        """Some files, and now and then something that is not to be read."""
        dice = self._dice
        for _ in range(dice.randint(1, most)):
            self._number += 1
            day = dice.choice(days)
            number = dice.choice([0, 1, 4, 9, 14])
            self._land(files.landing_file(dice, day.isoformat(), self._number, self._lines.some(day, number)))
        if dice.random() < 0.3:
            day = dice.choice(days)
            line = self._lines.corrected_payload().replace(b'"note"', b'"event_id":"not to be read","note"')
            kind = files.leave_what_is_not_read(dice, self.home.landing, day.isoformat(), self._number, line)
            self.home.history.append(f"    left: {kind}")

    def _land(self, file: files.LandingFile) -> None:
        self.home.land(file.day, file.name, file.content)
        self.reference.land(file)
        self.home.history.append(f"    landed: {file.day}/{file.name!r}, {len(file.lines)} lines")

    # Commands

    def _ended(self, done: StepOutcome, *codes: int) -> StepOutcome:
        """A command that must have ended with one of the exit codes, and without a mistake of its own.

        What Spark's engine and its workers print of what befell them may be long.
        """
        if done.code not in (codes or (0,)) or "AssertionError" in done.err:
            raise DeviatedError(f"expected exit code {codes or (0,)}:\n{done}")
        return done

    def _run(self) -> None:
        self._drop()
        done = self._ended(self.home.call("run", seconds=MAX_SECONDS))
        self._usual_seconds = done.seconds
        if not self._settled:
            self.reference.disturbed()
        self._settled = True
        self.compare()

    def _befallen(self, *arguments: str, codes: Sequence[int] = (0, 1, KILLED)) -> StepOutcome:
        """A command that something happens to."""
        self._settled = False
        running = self.home.start(*arguments)
        try:
            done = befall(self.home, running, self._dice, self._usual_seconds)
        finally:
            self._left.append(running)
        # What a killed command leaves ends by itself within seconds; the next one may meet it.
        if self._dice.random() < 0.5:
            running.sweep()
        return self._ended(done, *codes)

    def _killed_run(self) -> None:
        self._drop()
        self._befallen("run")
        if self._dice.random() < 0.5:
            self._drop(1)

    def _two_runs(self) -> None:
        self._drop()
        self._settled = False
        one, other = self.home.start("run"), self.home.start("run")
        for running in (one, other):
            self._ended(running.ended(MAX_SECONDS))
            running.sweep()

    def _work(self) -> None:
        """Follow while files come; it is ended as a supervisor does, or befallen."""
        self._drop()
        self._settled = False
        running = self.home.start("worker")
        try:
            at_some_moment(self.home, running, self._dice, self._usual_seconds)
            self._drop(2)
            if self._dice.random() < 0.4:
                self._ended(befall_or_end(self.home, running, self._dice, self._usual_seconds), 0, 1, KILLED)
                return
            self._wait_until_read(running)
            os.kill(running.process.pid, signal.SIGTERM)
            self._ended(running.ended(90))
        finally:
            running.sweep()

    def _wait_until_read(self, running: Running) -> None:
        deadline = time.monotonic() + MAX_SECONDS
        wanted = {position for (source, position) in self.reference.arrivals if source == "landing"}
        while running.process.poll() is None and time.monotonic() < deadline:
            rows = [*self.home.rows("raw_events", ["source_position"])]
            rows += self.home.rows("raw_events_exceptions", ["source_position"])
            if wanted <= {row["source_position"] for row in rows}:
                return
            time.sleep(0.5)
        raise DeviatedError(f"the worker has not read all that was there:\n{running.err[-3000:]}")

    # Undo

    def _reprocess(self) -> None:
        self._drop(1)
        self._settled = False
        days = sorted({row["partition_date"] for row in self.home.rows("raw_events", ["partition_date"])})
        if not days:
            return
        first, last = sorted(self._dice.choices(days, k=2))
        arguments = ["reprocess", "--from", first.isoformat(), "--to", last.isoformat(), "--yes"]
        if table := self._dice.choice(["", "", "warehouse_rows", "order_status_view"]):
            arguments += ["--tables", table]
        self.reference.undone = True
        self._perhaps_befallen(*arguments)

    def _restore(self) -> None:
        self._settled = False
        table = self._dice.choice(["normalized_orders", "warehouse_rows", "order_status_view"])
        versions = [int(path.stem) for path in self._log(table) if path.stem.isdigit()]
        if not versions:
            return
        version = self._dice.choice(versions)
        self.reference.undone = True
        self._perhaps_befallen("tables", "restore", table, "--to-version", str(version), "--yes")

    def _log(self, table: str) -> list[Any]:
        folder = self.home.folder(table)
        return sorted((folder / "_delta_log").glob("*.json")) if folder else []

    def _perhaps_befallen(self, *arguments: str) -> None:
        """A command, which the same command completes if something has happened to it."""
        if self._dice.random() < 0.5 and self._befallen(*arguments).code == 0:
            return
        self._ended(self.home.call(*arguments, seconds=MAX_SECONDS))

    # Dead letters

    def _open_letters(self) -> list[dict[str, Any]]:
        rows = [row for row in self.home.rows("dead_letters") if row["state"] == "open"]
        return sorted(rows, key=lambda row: row["dead_letter_id"])

    def _replay(self) -> None:
        """A letter of each stage, corrected; or all of a reason as they came."""
        if not self._settled:
            self.settle()
        letters = self._open_letters()
        for stage, replay in (("ingest", self._replay_at_ingest), ("normalize", self._replay_at_normalize)):
            of_stage = [letter for letter in letters if letter["stage"] == stage]
            if of_stage and self._dice.random() < 0.7:
                self._settled = False
                replay(self._dice.choice(of_stage))
        refused = [each for each in self._open_letters() if each["reason"] in REPLAYED_AS_THEY_CAME]
        if refused and self._dice.random() < 0.3:
            reason = self._dice.choice(refused)["reason"]
            self._replay_as_they_came(reason, [each for each in refused if each["reason"] == reason])
        self.settle()

    def _corrected(self, content: bytes) -> str:
        self._number += 1
        path = self.home.path / f"corrected-{self._number}.json"
        path.write_bytes(content)
        self.home.history.append(f"    corrected: {content!r:.300}")
        return str(path)

    def _replay_at_ingest(self, letter: dict[str, Any]) -> None:
        day, attempt = letter["partition_date"], letter["attempts"] + 1
        record = self._lines.corrected_event(day)
        arrival = self.reference.hand_in(letter["dead_letter_id"], day, attempt, record)
        judged = arrival.judged
        gets_in = False
        if isinstance(judged, Event):
            group = self.reference.by_event()[judged.event_id]
            first = min(group, key=lambda each: (each.epoch, each.order))
            accepted = next(
                (row for row in self.home.rows("raw_events") if row["event_id"] == judged.event_id), None
            )
            gets_in = first is arrival or (
                accepted is not None and accepted["fingerprint"] == judged.fingerprint
            )
        self.reference.disturbed()
        arguments = ("dead-letters", "replay", letter["dead_letter_id"], "--record", self._corrected(record))
        self._replayed(arguments, gets_in)
        reasons = judged.reasons if isinstance(judged, Refusal) else frozenset({"FingerprintConflict"})
        self.reference.letters[letter["dead_letter_id"]] = (
            DeadLetter(state="replayed", attempts=attempt)
            if gets_in
            else DeadLetter(state="open", attempts=attempt, reasons=reasons)
        )

    def _replay_at_normalize(self, letter: dict[str, Any]) -> None:
        content = self._lines.corrected_payload()
        (row,) = (each for each in self.home.rows("raw_events") if each["event_id"] == letter["event_id"])
        payload = parse(content)
        order = judge_payload(row["event_type"], row["schema_version"], payload)
        gets_in = isinstance(order, Order)
        self.reference.payloads[row["event_id"]] = payload
        attempt = letter["attempts"] + 1
        self._replayed(
            ("dead-letters", "replay", letter["dead_letter_id"], "--record", self._corrected(content)),
            gets_in,
        )
        reasons = order.reasons if isinstance(order, Refusal) else None
        state = "replayed" if gets_in else "open"
        self.reference.letters[letter["dead_letter_id"]] = DeadLetter(
            state=state, attempts=attempt, reasons=reasons
        )

    def _replayed(self, arguments: Sequence[str], gets_in: bool) -> None:
        """A replay; one that gets in may be befallen, and is repeated then, when it may be closed already."""
        if gets_in and self._dice.random() < 0.4:
            self._befallen(*arguments)
            done = self._ended(self.home.call(*arguments, seconds=MAX_SECONDS), 0, 1)
            if done.code == 1 and "is replayed, not open" not in done.err:
                raise DeviatedError(str(done))
            return
        self._ended(self.home.call(*arguments, seconds=MAX_SECONDS), 0 if gets_in else 1)

    def _replay_as_they_came(self, reason: str, letters: Sequence[dict[str, Any]]) -> None:
        self._settled = False
        self._ended(
            self.home.call("dead-letters", "replay", "--all-open", "--reason", reason, seconds=MAX_SECONDS),
            1,
        )
        for letter in letters:
            self.reference.payloads.setdefault(letter["event_id"], None)
            self.reference.letters[letter["dead_letter_id"]] = DeadLetter(
                state="open", attempts=letter["attempts"] + 1, reasons=frozenset({reason})
            )

    def _discard(self) -> None:
        letters = self._open_letters()
        for letter in self._dice.sample(letters, min(2, len(letters))):
            self._ended(
                self.home.call("dead-letters", "discard", letter["dead_letter_id"], "--reason", "a test")
            )
            self.reference.letters[letter["dead_letter_id"]] = DeadLetter(state="discarded", attempts=None)
        self._killed_run()

    # Upkeep, and files that are not as they should be

    def _keep_house(self) -> None:
        self._drop()
        self._settled = False
        beside = self.home.start("run") if self._dice.random() < 0.5 else None
        for table in self._dice.sample(TABLES, 2):
            if self.home.folder(table):
                self._ended(self.home.call("tables", "compact", table, seconds=MAX_SECONDS))
                self._ended(self.home.call("tables", "vacuum", table, "--delete"))
        if beside:
            self._ended(beside.ended(MAX_SECONDS))
            beside.sweep()

    def _changed_files(self) -> None:
        if not self._settled:
            self.settle()
        known = sorted(self.reference.files)
        for key in self._dice.sample(known, min(2, len(known))):
            file = self.reference.files[key]
            new = self._lines.some(dt.date.fromisoformat(file.day), 2)
            self._land(files.changed(self._dice, file, new))
        self.reference.disturbed()
        self._ended(self.home.call("run", seconds=MAX_SECONDS))
        self.compare()

    def _broken_file(self) -> None:
        bad_day, *others = self._dice.sample(DAYS, 3)
        name = f"broken{self._number}.jsonl.gz"
        content = files.broken(self._dice, self._lines.some(bad_day, 30))
        self._bad_day(bad_day, others, os.fsencode(name), content, named=name)

    def _name_that_is_no_text(self) -> None:
        bad_day, *others = self._dice.sample(DAYS, 3)
        good = self._lines.good(bad_day)
        self._bad_day(bad_day, others, b"\xff\xfe.jsonl", good + b"\n", named=bad_day.isoformat())

    def _bad_day(
        self, bad_day: dt.date, others: Sequence[dt.date], name: bytes, content: bytes, *, named: str
    ) -> None:
        """One file cannot be read: it is named, the other days reach the warehouse, and all is well once it
        is gone.
        """
        if not self._settled:
            self.settle()
        self._drop(2, others)
        self._settled = False
        folder = os.fsencode(self.home.landing / bad_day.isoformat())
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - a name of bytes
        path = os.path.join(folder, name)  # noqa: PTH118
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(content)
        self.home.history.append(f"    landed: {bad_day}/{name!r}, which cannot be read")
        done = self._ended(self.home.call("run", seconds=MAX_SECONDS), 1)
        if named not in done.err:
            raise DeviatedError(f"{named} is not named:\n{done}")
        there = {row["event_id"] for row in self.home.rows("warehouse_rows", ["event_id"])}
        missing = [each for each in self._orders_of(others) if each not in there]
        if missing:
            raise DeviatedError(f"days beside the bad one have not reached the warehouse: {missing}\n{done}")
        os.unlink(path)  # noqa: PTH108
        self.settle()

    def _orders_of(self, days: Sequence[dt.date]) -> Iterator[str]:
        for event_id, group in self.reference.by_event().items():
            event = group[0].judged
            if len(group) == 1 and group[0].day in days and isinstance(event, Event):
                payload = self.reference.payloads.get(event_id) or event.payload
                if isinstance(judge_payload(event.event_type, event.schema_version, payload), Order):
                    yield event_id


def befall_or_end(home: Home, running: Running, dice: random.Random, usual_seconds: float) -> StepOutcome:
    """A worker to which something happens; it is ended if it lives on."""
    victim = dice.random()
    if victim < 0.5:
        running.send(signal.SIGKILL)
        return running.ended(MAX_SECONDS)
    running.send(signal.SIGSTOP)
    time.sleep(dice.uniform(0.5, 3))
    running.send(signal.SIGCONT)
    at_some_moment(home, running, dice, min(usual_seconds, 5.0))
    os.kill(running.process.pid, signal.SIGTERM)
    return running.ended(90)


ACTIONS: dict[str, Callable[[Life], None]] = {
    "run": Life._run,
    "killed run": Life._killed_run,
    "killed run again": Life._killed_run,
    "two runs": Life._two_runs,
    "worker": Life._work,
    "reprocess": Life._reprocess,
    "restore": Life._restore,
    "replay": Life._replay,
    "discard": Life._discard,
    "upkeep": Life._keep_house,
    "changed files": Life._changed_files,
    "broken file": Life._broken_file,
    "name that is no text": Life._name_that_is_no_text,
}


def _dealt(dice: random.Random, cards: Sequence[T]) -> Iterator[T]:
    """The cards in random order, over and over: each once before one comes again."""
    while True:
        yield from dice.sample(cards, len(cards))
