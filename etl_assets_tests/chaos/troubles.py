"""What befalls the platform in a round: something happens to its runs, a root fails for a while, a root loses something.

Each of the three is dealt from a shuffled deck of its own, so that every kind comes before one comes twice.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from etl_assets.placement.memory import Standing
from etl_assets.testing.failpoints import Failpoint
from etl_assets_tests.chaos.decks import dealt
from etl_assets_tests.chaos.roots import NETWORK, Root, keys_of_newest_folders
from etl_assets_tests.chaos.run_process import STEPS
from etl_assets_tests.chaos.world import World
from etl_assets_tests.reference.fault_proxy import Fault

T = TypeVar("T")

LONGEST_SLEEP_SECONDS = 20.0

FAILPOINTS = (
    f"{Failpoint.EXCEPTIONS_AFTER_COMMIT.value}@raw_events",
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


class Troubles:
    """Deals them to a world, one of each sort a round."""

    def __init__(self, world: World) -> None:
        self.last = "none yet"
        """The story of the last round."""
        self._world = world
        self._runs = dealt(list(RUNS), world.dice)
        self._faults = _deck_of_faults(world)
        # With one quiet card: what was lost is built anew, and that must not be needed to go on.
        self._losses = dealt(
            [*DAMAGES, EMPTIED, "nothing" if world.bucket is None else SERVER_KILLED], world.dice
        )

    def round(self) -> str | None:
        """Something happens to runs; at some moment of it a root fails, and comes back; and a root loses something.

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
        if loss in DAMAGES:
            self.last += f": {DAMAGES[loss](losing, dice)}"
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

    def _losing(self, loss: str, failing: Root) -> Root:
        """The root that loses something. A disk that fails meanwhile cannot be reached for that; a bucket's server can."""
        bucket = self._world.bucket
        if loss == SERVER_KILLED and bucket is not None:
            return bucket
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
        memory.set_standing(root.name, Standing.FAILED)
        yield
        memory.set_standing(root.name, Standing.IN_USE)


def faults_of(root: Root) -> tuple[str, ...]:
    """What may happen to a root for a while."""
    return (*root.faults(), FAILED_BY_HAND)


def _deck_of_faults(world: World) -> Iterator[str]:
    """Those of the network first, where there is one: a short stay in that world is to see them all."""
    if world.bucket is not None:
        yield from world.dice.sample(list(world.bucket.faults()), len(world.bucket.faults()))
    everything = dict.fromkeys(fault for root in world.roots for fault in faults_of(root))
    yield from dealt(list(everything), world.dice)


def any_moment(world: World, dice: random.Random) -> float:
    """A moment of a run, in seconds: one that has something to do takes about twice as long as one that has not."""
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
    """A run sleeps at any moment of its work, another one does it elsewhere, the first wakes up and goes on."""
    paused = world.start()
    time.sleep(any_moment(world, dice))
    paused.pause()
    noted = world.acknowledged()
    leader = noted[-1]["domain"] if noted else world.names[0]
    world.placement().memory.set_standing(leader, Standing.FAILED)
    other = world.start()
    # The engine is shared: where it waits for an answer of the one asleep, the other one waits as well.
    other.wait(LONGEST_SLEEP_SECONDS)
    paused.wake()
    world.finish(other)
    world.finish(paused)
    world.placement().memory.set_standing(leader, Standing.IN_USE)


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


def _change(root: Root, ending: str, dice: random.Random, change: Callable[[bytes], bytes]) -> str:
    """Change one file, and say which."""
    key = dice.choice(keys_of_newest_folders(root, ending))
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
}
