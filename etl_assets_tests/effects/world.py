"""Workers of two domains at the same effects, in a random schedule of everything that can come in between."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from etl_assets.effects.effect import Effect
from etl_assets.effects.store import Completed, EffectStore, Reserved
from etl_assets.errors import (
    CommitConflict,
    EffectInProgress,
    EffectKeyReused,
    EffectTakenOver,
    Fenced,
    QuorumUnavailable,
)
from etl_assets.testing.memory_effects import MemoryEffectsTable

DOMAINS = ("a", "b")
KEYS = ("k1", "k2", "k3")
SINK, EXPIRES_SECONDS = "sink", 10.0
_DEEPEST = 3


class Killed(BaseException):
    """The process is gone, whatever it was at."""


@dataclass(eq=False)
class Worker:
    """A process: what it believes to have reserved, and whether it lives."""

    name: str
    domain: str
    store: EffectStore
    doing: set[str] = field(default_factory=set)
    alive: bool = True
    busy: bool = False


class World:
    """One schedule. `violations` says what must not have happened."""

    def __init__(self, seed: int, store: Callable[..., EffectStore] = EffectStore) -> None:
        self.dice = random.Random(seed)
        self.table = MemoryEffectsTable()
        self.now = 0.0
        self.workers: list[Worker] = []
        self.gone: set[str] = set()
        self.violations: list[str] = []
        self.told: dict[str, set[str]] = defaultdict(set)
        self.reserved_at: dict[str, float] = {}
        self.befell: dict[str, int] = defaultdict(int)
        self._make, self._depth, self._judged = store, 0, 1

    def run(self, steps: int) -> None:
        """Let things happen, then let somebody finish what is left."""
        for _ in range(steps):
            self.happen()
        self._finish()

    def happen(self) -> None:
        """One thing."""
        kind = self.dice.choices(
            ("reserve", "complete", "kill", "claim", "time", "reuse"), (8, 8, 1, 1, 3, 1)
        )[0]
        self.befell[kind] += 1
        if kind == "time":
            self.now += self.dice.choice((0.5, 3.0, 11.0))
        elif kind == "claim":
            self.table.claim(self.dice.choice(DOMAINS))
        elif (worker := self._idle()) is not None:
            if kind == "kill":
                self._kill(worker)
            else:
                self._act(worker, kind)
        self._judge()

    def _act(self, worker: Worker, kind: str) -> None:
        worker.busy = True
        try:
            if kind == "reserve":
                self._reserve(worker)
            elif kind == "reuse":
                self._reuse(worker)
            elif worker.doing:
                self._complete(worker)
        except Killed:
            self._kill(worker)
        except (Fenced, CommitConflict, QuorumUnavailable, EffectInProgress) as error:
            self.befell[type(error).__name__] += 1
        finally:
            worker.busy = False

    def _reserve(self, worker: Worker) -> None:
        keys = self.dice.sample(KEYS, self.dice.randint(1, len(KEYS)))
        answers = worker.store.reserve_all({key: f"content of {key}" for key in keys}, wait_seconds=0)
        for key, answer in answers.items():
            if isinstance(answer, Completed):
                self.told[key].add(answer.result)
            else:
                worker.doing.add(key)

    def _reuse(self, worker: Worker) -> None:
        key = self.dice.choice(KEYS)
        if (SINK, key) not in self.table.versions[-1]:
            return
        try:
            worker.store.reserve(key, "another content", wait_seconds=0)
        except EffectKeyReused:
            return
        self.violations.append(f"{key} was given away for another content")

    def _complete(self, worker: Worker) -> None:
        keys = self.dice.sample(sorted(worker.doing), self.dice.randint(1, len(worker.doing)))
        try:
            kept = worker.store.complete_all({key: f"{key} by {worker.name} at {self.now}" for key in keys})
        except EffectTakenOver:
            self.befell["EffectTakenOver"] += 1
            worker.doing.clear()
            return
        for key, result in kept.items():
            self.told[key].add(result)
            if self.dice.random() < 0.5:
                worker.doing.discard(key)  # The others are completed once more.

    def _idle(self) -> Worker | None:
        alive = [worker for worker in self.workers if worker.alive]
        if len(alive) < 3:
            alive.append(self._worker(self.dice.choice(DOMAINS)))
        idle = [worker for worker in alive if not worker.busy]
        return self.dice.choice(idle) if idle else None

    def _worker(self, domain: str) -> Worker:
        name, ahead = f"w{len(self.workers)}", self.dice.uniform(-1e6, 1e6)
        log = self.table.process(domain, before=self._in_between, after=self._after)
        store = self._make(
            log,
            sink=SINK,
            domain=domain,
            expires_seconds=EXPIRES_SECONDS,
            process=name,
            process_is_gone=lambda process: (
                process.partition("/")[0] in self.gone and self.dice.random() < 0.5
            ),
            monotonic=lambda: self.now + ahead,
            sleep=self._sleep,
        )
        worker = Worker(name, domain, store)
        self.workers.append(worker)
        return worker

    def _in_between(self) -> None:
        """A commit is decided on, and not made."""
        while self._depth < _DEEPEST and self.dice.random() < 0.3:
            self._depth += 1
            try:
                self.happen()
            finally:
                self._depth -= 1
        self._trouble()

    def _after(self) -> None:
        self._judge()
        self._trouble()

    def _trouble(self) -> None:
        kind = self.dice.choices((None, "killed", "lost"), (16, 1, 2))[0]
        if kind == "killed":
            raise Killed
        if kind == "lost":
            self.befell["lost answers"] += 1
            raise QuorumUnavailable("no answer", fix="ask again", table="effects", missing={})

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def _kill(self, worker: Worker) -> None:
        worker.alive = False
        self.gone.add(worker.name)

    def _finish(self) -> None:
        """Whatever happened, somebody who is left alone gets everything done."""
        last = self._worker(self.dice.choice(DOMAINS))
        last.store._log = self.table.process(last.domain)
        try:
            answers = last.store.reserve_all({key: f"content of {key}" for key in KEYS})
        except EffectInProgress as error:
            self.violations.append(f"nobody takes over: {error.message}")
            return
        kept = last.store.complete_all(
            {key: "late" for key, each in answers.items() if isinstance(each, Reserved)}
        )
        self._judge()
        for key, answer in answers.items():
            self.told[key].add(answer.result if isinstance(answer, Completed) else kept[key])
            if len(self.told[key]) > 1:
                self.violations.append(f"{key} has several results: {self.told[key]}")

    def _judge(self) -> None:
        """Look at every version that was made since."""
        while self._judged < len(self.table.versions):
            before, after = self.table.versions[self._judged - 1 : self._judged + 1]
            epoch = self.table.epochs[self._judged - 1]
            self._judged += 1
            for name in after:
                if after[name] != before.get(name):
                    self._judge_change(before.get(name), after[name], epoch)

    def _judge_change(self, before: Effect | None, after: Effect, epoch: str) -> None:
        if before is not None and before.is_completed:
            self.violations.append(f"{after.key} was completed, and became {after}")
        elif after.is_completed:
            if before is None or before.token != after.token:
                self.violations.append(f"{after.key} was completed without its reservation")
            if after.owner_epoch != epoch:
                self.violations.append(f"{after.key} was completed by a fenced owner")
        else:
            if before is not None:
                self._judge_taken_over(before, after, epoch)
            self.reserved_at[after.token] = self.now

    def _judge_taken_over(self, before: Effect, after: Effect, epoch: str) -> None:
        same = before.owner_process == after.owner_process
        gone = before.owner_process.partition("/")[0] in self.gone
        expired = self.now - self.reserved_at[before.token] >= EXPIRES_SECONDS
        if not (same or gone or expired or before.owner_epoch != epoch):
            self.violations.append(f"{after.key} was taken from an owner that may be at it")
        self.befell["taken over"] += not same
