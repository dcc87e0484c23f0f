"""What befalls the platform in a round: something happens to its runs, a root fails for a while, a root loses
something.

Each of the three is dealt from a shuffled deck of its own, so that every kind comes before one comes twice.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from etl_assets.failpoints import Failpoint
from etl_assets.placement.domain_registry import AdminState
from etl_assets_tests.chaos.decks import dealt, with_a_flipped_bit
from etl_assets_tests.chaos.roots import (
    DISK_BLINKS,
    NETWORK,
    TABLES_UNREADABLE,
    Disk,
    Root,
    keys_of_newest_folders,
)
from etl_assets_tests.chaos.run_process import STEPS
from etl_assets_tests.chaos.world import World
from etl_assets_tests.reference.fault_proxy import Fault

T = TypeVar("T")

MAX_SLEEP_SECONDS = 20.0

FAILPOINTS = (
    *(
        f"{Failpoint.EXCEPTIONS_AFTER_COMMIT.value}@{table}"
        for table in ("raw_events", "parts_source", "parts")
    ),
    *(
        f"{point.value}@{table}"
        for table in STEPS
        for point in (
            Failpoint.TABLE_BEFORE_COMMIT,
            Failpoint.TABLE_AFTER_COMMIT,
            Failpoint.TABLE_AFTER_SYNC,
        )
    ),
    Failpoint.LEDGER_BEFORE_WRITE.value,
    Failpoint.LEDGER_AFTER_WRITE.value,
)
FAILED_BY_HAND, EMPTIED, SERVER_KILLED = "failed by hand", "emptied", "server killed"
DATA_FLIPPED, OLD_BACKUP = "bit of a data file flipped", "restored from a backup"


class Troubles:
    """Deals them to a world, one of each sort a round."""

    def __init__(self, world: World) -> None:
        self.last = "none yet"
        """The story of the last round."""
        self._world = world
        self._runs = dealt(list(RUNS), world.dice)
        self._faults = deck_of_faults(world)
        self._losses = deck_of_losses(world)
        self._backed_up: Disk | None = None

    def round(self) -> str | None:
        """Something happens to runs; at some moment of it a root fails, and comes back; and a root loses
        something.

        Returns:
            The domain that lost all it had, if one did.
        """
        world, dice = self._world, self._world.dice
        runs, fault, loss = next(self._runs), next(self._faults), next(self._losses)
        world.befell.update((runs, fault, loss))
        failing = dice.choice([root for root in world.roots if fault in faults_of(root)])
        losing = self._losing(loss, failing)
        begins, lasts = any_moment(world, dice), any_moment(world, dice)
        to_the_end = fault != NETWORK[Fault.SILENT] and dice.random() < 0.5
        # Dice of their own: two threads that share some would make another story each time.
        theirs = random.Random(dice.getrandbits(64))
        self.last = (
            f"{runs}; {fault} in {failing.name} after {begins:.1f} s"
            f"{'' if to_the_end else f' for {lasts:.1f} s'}; {loss} in {losing.name}"
        )
        self.last += self._damaged(loss, losing)
        with ThreadPoolExecutor(1) as aside:
            work = aside.submit(RUNS[runs], world, theirs)
            wait([work], begins)
            with self._failing(failing, fault):
                if work.done():
                    # What happens while a domain is away must not need it.
                    work.result()
                    work = aside.submit(one_run, world)
                wait([work], lasts)
                if loss == EMPTIED:
                    losing.empty()
                elif loss == SERVER_KILLED and world.bucket is not None:
                    world.bucket.restart()
                if to_the_end:
                    work.result()
            work.result()
        return losing.name if loss in (EMPTIED, SERVER_KILLED) else None

    def _damaged(self, loss: str, losing: Root) -> str:
        """Damage a root while nobody is at work, if that is the loss; what was damaged."""
        world, dice = self._world, self._world.dice
        if loss == OLD_BACKUP and self._backed_up is not None:
            self._backed_up.restore()
        self._backed_up = dice.choice(world.disks)
        self._backed_up.back_up()
        if loss not in DAMAGES:
            return ""
        damaged = DAMAGES[loss](losing, dice)
        if loss == DATA_FLIPPED:
            # A reader would take it as it is: nothing in a Delta log tells a file's bytes. An operator
            # compares.
            world.compare_bytes()
        return f": {damaged}"

    def _losing(self, loss: str, failing: Root) -> Root:
        """The root that loses something. A disk that fails meanwhile cannot be reached for that; a
        bucket's server can.
        """
        bucket = self._world.bucket
        if loss == SERVER_KILLED and bucket is not None:
            return bucket
        if loss == OLD_BACKUP and self._backed_up is not None:
            return self._backed_up
        return self._world.dice.choice(
            [root for root in self._world.roots if root is not failing or root is bucket]
        )

    @contextmanager
    def _failing(self, root: Root, fault: str) -> Generator[None]:
        if fault != FAILED_BY_HAND:
            with root.faults()[fault]:
                yield
            return
        memory = self._world.placement().memory
        memory.set_standing(root.name, AdminState.FAILED)
        yield
        memory.set_standing(root.name, AdminState.IN_USE)


def faults_of(root: Root) -> tuple[str, ...]:
    """What may happen to a root for a while."""
    return (*root.faults(), FAILED_BY_HAND)


def deck_of_faults(world: World) -> Iterator[str]:
    """First those of the network, where there is one: a short stay in that world is to see them all."""
    network = [] if world.bucket is None else list(world.bucket.faults())
    everything = list(dict.fromkeys(fault for root in world.roots for fault in faults_of(root)))
    yield from dealt(network, world.dice, times=1)
    yield from dealt([fault for fault in everything if fault not in {*network, *LATER}], world.dice, times=1)
    yield from dealt(everything, world.dice)


def deck_of_losses(world: World) -> Iterator[str]:
    """With one quiet card: what was lost is built again, and that must not be needed to go on.

    What is cut or edited comes first; long stays see rot and backups, of which there is one from the second
    round on.
    """
    everything = [*DAMAGES, EMPTIED, "nothing" if world.bucket is None else SERVER_KILLED, OLD_BACKUP]
    yield from dealt([loss for loss in everything if loss not in LATER], world.dice, times=1)
    yield from dealt(everything, world.dice)


def any_moment(world: World, dice: random.Random) -> float:
    """A moment of a run, in seconds: one that has something to do takes about twice as long as one that
    has not.
    """
    return dice.uniform(0.1, 1.5) * world.run_seconds


# What happens to runs


def one_run(world: World, _: random.Random | None = None) -> None:
    world.finish(world.start())


def killed_at_a_failpoint(world: World, dice: random.Random) -> None:
    world.finish(world.start(dice.choice(FAILPOINTS)))


def killed_at_any_moment(world: World, dice: random.Random) -> None:
    """What Spark does for the run at that moment it brings to its end, as a Spark server would."""
    run = world.start()
    time.sleep(any_moment(world, dice))
    run.kill()


def leader_paused(world: World, dice: random.Random) -> None:
    """A run sleeps at any moment of its work, another one does it elsewhere, the first wakes up and goes
    on.
    """
    paused = world.start()
    time.sleep(any_moment(world, dice))
    paused.pause()
    noted = world.acknowledged()
    leader = noted[-1]["domain"] if noted else world.names[0]
    world.placement().memory.set_standing(leader, AdminState.FAILED)
    other = world.start()
    # The engine is shared: where it waits for an answer of the one asleep, the other one waits as well.
    other.wait(MAX_SLEEP_SECONDS)
    paused.wake()
    world.finish(other)
    world.finish(paused)
    world.placement().memory.set_standing(leader, AdminState.IN_USE)


def two_at_once(world: World, _: random.Random) -> None:
    one, other = world.start(), world.start()
    world.finish(one)
    world.finish(other)


RUNS: Mapping[str, Callable[[World, random.Random], None]] = {
    "run left alone": one_run,
    "run killed at a failpoint": killed_at_a_failpoint,
    "run killed at any moment": killed_at_any_moment,
    "leader paused": leader_paused,
    "two runs at once": two_at_once,
}


# What a root loses


def file_cut(root: Root, dice: random.Random) -> str:
    return _change(root, ".parquet", dice, lambda content: content[: len(content) // 2])


def entry_edited(root: Root, dice: random.Random) -> str:
    """Somebody edits a published log entry."""
    return _change(root, ".json", dice, lambda content: content.replace(b'"', b"'", 1))


def entry_cut(root: Root, dice: random.Random) -> str:
    """Of a published log entry the last lines are gone; what is left makes sense."""
    return _change(root, ".json", dice, lambda content: b"".join(content.splitlines(keepends=True)[:-1]))


def bit_of_entry(root: Root, dice: random.Random) -> str:
    return _change(root, ".json", dice, lambda content: with_a_flipped_bit(content, dice))


def bit_of_data(root: Root, dice: random.Random) -> str:
    return _change(root, ".parquet", dice, lambda content: with_a_flipped_bit(content, dice))


def bit_of_register(root: Root, dice: random.Random) -> str:
    keys = sorted(key for key in root.store.list("register/") if key.endswith(".json"))
    return _change_one(root, dice.choice(keys), lambda content: with_a_flipped_bit(content, dice))


def _change(root: Root, ending: str, dice: random.Random, change: Callable[[bytes], bytes]) -> str:
    """Change one file of a table, and say which."""
    return _change_one(root, dice.choice(keys_of_newest_folders(root, ending)), change)


def _change_one(root: Root, key: str, change: Callable[[bytes], bytes]) -> str:
    found = root.store.get(key)
    assert found is not None, f"{key} is not in {root.name}, though nobody is at work"
    # Gone first: folders may share a file by hard links.
    root.store.delete(key)
    root.store.put(key, [change(found.content)])
    return key


DAMAGES: Mapping[str, Callable[[Root, random.Random], str]] = {
    "file cut": file_cut,
    "log entry edited": entry_edited,
    "log entry cut": entry_cut,
    "bit of a log entry flipped": bit_of_entry,
    "bit of a register flipped": bit_of_register,
    DATA_FLIPPED: bit_of_data,
}
LATER = {
    DISK_BLINKS,
    TABLES_UNREADABLE,
    "bit of a log entry flipped",
    "bit of a register flipped",
    DATA_FLIPPED,
    OLD_BACKUP,
}
"""Dealt once the others were: the few rounds of a short stay are for those that come most often."""
