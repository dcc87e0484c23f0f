"""Real processes on real folders, killed, stopped and cut off: what was acknowledged is there, once, in every
domain.

`CHAOS_ROUNDS` and `CHAOS_SEED` say how long and from where; a failure names its seed. `make chaos` runs a
hundred rounds, each time from elsewhere; without the variable it is always the same place.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from etl_assets.delta.replicated.replication import Replication
from etl_assets.errors import MembershipRefused, MirrorError, Unanswered
from etl_assets.placement.domain_registry import DomainRegistry
from etl_assets_tests.chaos.commit_process import NAMES, TABLE, data_of, domain_of
from etl_assets_tests.chaos.decks import dealt, with_a_flipped_bit
from etl_assets_tests.chaos.roots import unreadable

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "6"))
SEED = int(os.environ.get("CHAOS_SEED") or 0)
ROUND_SECONDS = 1.5
REPAIR_SECONDS = 60
LOSS_SHARE = 0.9
PARTS = ("register", "tables")
PASSING = ("kill", "pause", "unmount", "blink", "unreadable")
LOSSES = ("empty", "cut", "flip_in_register", "flip_in_log", "flip_in_data", "old_backup")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + ROUNDS * 30)]


@dataclass
class Chaos:
    """Three domains under one folder, a worker in each, and what befalls them."""

    home: Path
    dice: random.Random
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    befell: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.passing = dealt(PASSING, self.dice)
        self.losses = dealt(LOSSES, self.dice)

    def start(self) -> None:
        for name in NAMES:
            if name not in self.workers or self.workers[name].poll() is not None:
                notes = self.home / f"acknowledged-{name}"
                command = [sys.executable, "-m", "etl_assets_tests.chaos.commit_process"]
                self.workers[name] = subprocess.Popen([*command, str(self.home), name, str(notes)])

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.send_signal(signal.SIGCONT)
            worker.kill()
            worker.wait()

    def kill(self, name: str) -> None:
        self.workers[name].kill()
        self.workers[name].wait()
        self.start()

    def pause(self, name: str) -> None:
        self.workers[name].send_signal(signal.SIGSTOP)
        time.sleep(self.dice.uniform(0.1, ROUND_SECONDS))
        self.workers[name].send_signal(signal.SIGCONT)

    def unmount(self, name: str) -> None:
        away = self.home / f"away-{name}"
        (self.home / name).rename(away)
        time.sleep(self.dice.uniform(0.1, ROUND_SECONDS))
        self._put_back(away, self.home / name)

    @staticmethod
    def _put_back(away: Path, root: Path) -> None:
        """A worker may have made folders in the place of the root meanwhile, as on a disk that is not
        mounted.
        """
        while True:
            shutil.rmtree(root, ignore_errors=True)
            with suppress(OSError):
                away.rename(root)
                return

    def blink(self, name: str) -> None:
        """The root is away and back within milliseconds, over and over; at some of the times an empty folder
        is in its place.
        """
        root, away = self.home / name, self.home / f"away-{name}"
        until = time.monotonic() + self.dice.uniform(0.1, ROUND_SECONDS)
        while time.monotonic() < until:
            root.rename(away)
            if self.dice.random() < 0.7:
                root.mkdir(exist_ok=True)  # a worker may have been quicker
            time.sleep(self.dice.uniform(0.0, 0.01))
            self._put_back(away, root)
            time.sleep(self.dice.uniform(0.0, 0.05))

    def unreadable(self, name: str) -> None:
        """A folder of the root cannot be listed."""
        folder = self.home / name / self.dice.choice(("tables", f"tables/{TABLE}", "register"))
        try:
            with unreadable(folder):
                time.sleep(self.dice.uniform(0.1, ROUND_SECONDS))
        except (OSError, subprocess.CalledProcessError):
            # There is no such folder yet, or this machine has no file system that cannot be read.
            self.befell["not unreadable after all"] += 1

    def empty(self, name: str) -> None:
        for part in PARTS:
            shutil.rmtree(self.home / name / part, ignore_errors=True)

    def cut(self, name: str) -> None:
        """Cut a data file of a replica short."""
        self._change(self._files(name, "*.parquet"), lambda content: content[:-7])

    def flip_in_register(self, name: str) -> None:
        self._change(self._files(name, f"{TABLE}.json"), self._flipped)

    def flip_in_log(self, name: str) -> None:
        self._change(self._files(name, "*[0-9].json"), self._flipped)

    def flip_in_data(self, name: str) -> None:
        """All is still, and each domain has it: what copies a rotten file takes it as it is, until bytes are
        compared.
        """
        self.stop()
        self.repair()
        self._change(self._files(name, "*.parquet"), self._flipped)

    def old_backup(self, name: str) -> None:
        """The root is put back from a copy that some commits are missing in, and nobody else has lost
        anything.
        """
        copy = self.home / f"copy-{name}"
        if not all((copy / part).exists() for part in PARTS):
            return
        self.stop()
        self.repair()
        self.empty(name)
        for part in PARTS:
            shutil.copytree(copy / part, self.home / name / part)
        self.start()
        time.sleep(self.dice.uniform(0.2, ROUND_SECONDS))

    def back_up(self, name: str) -> None:
        """Copy a root while it is in use: what the register names first, so that all of it is in the copy."""
        copy = self.home / f"copy-{name}"
        shutil.rmtree(copy, ignore_errors=True)
        for part in PARTS:
            with suppress(shutil.Error, FileNotFoundError):  # what went meanwhile, or is not there yet
                shutil.copytree(self.home / name / part, copy / part)

    def _files(self, name: str, pattern: str) -> list[Path]:
        return sorted(path for part in PARTS for path in (self.home / name / part).rglob(pattern))

    def _flipped(self, content: bytes) -> bytes:
        return with_a_flipped_bit(content, self.dice)

    def _change(self, files: list[Path], change: Callable[[bytes], bytes]) -> None:
        """Change one of some files."""
        while files:
            file = files.pop(self.dice.randrange(len(files)))
            with suppress(FileNotFoundError):  # it went meanwhile
                # A copy of its own first: folders may share files by hard links.
                content = change(file.read_bytes())
                file.unlink()
                file.write_bytes(content)
                return

    def round(self) -> None:
        """Let the workers commit, and something happen to one or two of them."""
        self.start()
        time.sleep(self.dice.uniform(0.2, ROUND_SECONDS))
        for _ in range(self.dice.choice((1, 2))):
            self._befalls(self.passing)
        if self.dice.random() < LOSS_SHARE:
            # One memory is lost at most before it is replaced: two of three would be a lost majority.
            self._befalls(self.losses)
            self.stop()
            self.repair()
            self.start()
            self.back_up(self.dice.choice(NAMES))
        time.sleep(self.dice.uniform(0.1, 0.5))

    def _befalls(self, troubles: Iterator[str]) -> None:
        what = next(troubles)
        self.befell[what] += 1
        getattr(self, what)(self.dice.choice(NAMES))

    def repair(self) -> None:
        """Lead from any domain that can, let lost memories rejoin, build broken replicas again, bring all to
        the head.
        """
        deadline = time.monotonic() + REPAIR_SECONDS
        problem: object = "no domain is whole"
        while True:
            for name in self.dice.sample(NAMES, len(NAMES)):
                try:
                    if self._repaired_from(Replication(TABLE, domain_of(self.home, name))):
                        return
                except (MirrorError, Unanswered) as error:
                    problem = error
            assert time.monotonic() < deadline, f"not repaired: {problem}"

    @staticmethod
    def _repaired_from(table: Replication) -> bool:
        table.lead()
        for name in table.membership.forgotten():
            table.membership.add(name)
            table.membership.promote(name)
        table.follow()
        for name, problems in table.broken().items():
            if problems:
                try:
                    table.rebuild(name)
                except MembershipRefused:
                    return False  # it is the leader's own: another one has to lead
        table.follow()
        for each in table.differing():
            table.repair_files(each)
        return not any(table.broken().values())

    def acknowledged(self) -> list[str]:
        return [line for name in NAMES for line in self._lines(self.home / f"acknowledged-{name}")]

    @staticmethod
    def _lines(file: Path) -> list[str]:
        return [line for line in file.read_text().splitlines() if len(line) == 32] if file.exists() else []

    def committed(self, name: str) -> tuple[int, list[str], dict[str, bytes]]:
        """Acknowledged version, ids in order, and the log of a domain's replica."""
        bound = Replication(TABLE, domain_of(self.home, name)).bind()
        assert bound is not None
        assert bound.domain == name
        entries = {
            f"{version:020d}.json": (
                Path(bound.uri) / bound.folder / "_delta_log" / f"{version:020d}.json"
            ).read_bytes()
            for version in range(bound.version + 1)
        }
        ids = [json.loads(entry.splitlines()[0])["commitInfo"]["id"] for entry in entries.values()]
        for each in ids:
            assert (Path(bound.uri) / bound.folder / f"part-{each}.parquet").read_bytes() == data_of(each), (
                name
            )
        return bound.version, ids, entries


def test_what_was_acknowledged_is_there_once_in_every_domain(tmp_path, tell):
    chaos = Chaos(home=tmp_path, dice=random.Random(SEED))
    memory = DomainRegistry(tmp_path / "domains.json")
    for name in NAMES:
        memory.take(name, str(tmp_path / name))
    Replication(TABLE, domain_of(tmp_path, "a")).create()
    try:
        for _ in range(ROUNDS):
            chaos.round()
    finally:
        chaos.stop()
    chaos.repair()
    told = f"seed {SEED}, {dict(chaos.befell)}"
    _, ids, log = chaos.committed("a")
    assert [name for name, times in Counter(ids).items() if times > 1] == [], told
    assert set(chaos.acknowledged()) <= set(ids), told
    assert len(ids) > ROUNDS, told
    for name in NAMES[1:]:
        assert chaos.committed(name)[2] == log, told
    tell(f"{told}: {len(chaos.acknowledged())} acknowledged, {len(ids)} committed, none lost, none doubled")
