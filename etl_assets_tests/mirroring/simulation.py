"""A deterministic world of domains and processes, in which anything may happen between two store operations.

The processes run the production code. Each is a greenlet, and so is each of its errands; before and after
every store operation the baton goes back to the scheduler, which hands it to any of them, as the seed says.
Processes are killed and paused, stores are down or emptied, answers get lost, operations come late or twice.
After every change of a register the world is compared with what was ever acknowledged.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

import greenlet

from etl_assets.errors import MirrorError, Unanswered
from etl_assets.mirroring.maintenance.log_cleanup import clean, move_base
from etl_assets.mirroring.protocol.bootstrap import bootstrap
from etl_assets.mirroring.protocol.chain import GENESIS, extend, extend_all
from etl_assets.mirroring.protocol.checkpoints import Checkpoint, digest
from etl_assets.mirroring.protocol.epochs import Epoch
from etl_assets.mirroring.protocol.lead import Lead
from etl_assets.mirroring.protocol.leadership import Leadership
from etl_assets.mirroring.protocol.locator import Locator, Role
from etl_assets.mirroring.protocol.membership import Membership
from etl_assets.mirroring.protocol.mirror import Mirror
from etl_assets.mirroring.protocol.named_files import NamedFile, files_named, files_removed
from etl_assets.mirroring.protocol.reading import Reading
from etl_assets.mirroring.protocol.record import WHOLE_LOG, Base, Record, State
from etl_assets.mirroring.protocol.record_codec import decode
from etl_assets.mirroring.protocol.replica import ReplicaStore
from etl_assets.mirroring.protocol.table import MirroredTable
from etl_assets.testing.memory_store import MemoryStore, StoreFault
from etl_assets_tests.mirroring.platform import CONVERSION

T = TypeVar("T")
TABLE = "events"
PROCESSES_A_DOMAIN = 2
CALM_STEPS = 15_000


class Violation(AssertionError):
    """An invariant does not hold."""


class Killed(BaseException):
    """Raised in a process that is no more; passes every handler of an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How rough a world is. Probabilities are per step of the scheduler, `fault` and `blink` per store
    operation.
    """

    steps: int = 600
    fault: float = 0.015
    kill: float = 0.008
    pause: float = 0.012
    pause_steps: int = 150
    outage: float = 0.004
    outage_steps: int = 120
    move: float = 0.01
    rogue: float = 0.1
    empty: float = 0.0
    restore: float = 0.0
    stay: float = 0.6
    tidy: float = 0.3
    late: float = 0.05
    blink: float = 0.0
    layouts: tuple[str, ...] = ("vvv", "vvw", "vvvl", "vvvww", "vvwl")

    @property
    def trouble(self) -> float:
        """Probability that a step brings any of the troubles."""
        return sum(getattr(self, name) for name in _TROUBLES)


_TROUBLES = ("kill", "pause", "outage", "move", "empty", "restore")
ROLES = {"v": Role.VOTER, "w": Role.WITNESS, "l": Role.LEARNER}


class Process:
    """A process of a domain: a main greenlet and errands."""

    def __init__(self, number: int, domain: str) -> None:
        self.number = number
        self.domain = domain
        self.greenlets: list[greenlet.greenlet] = []
        self.waiting: set[greenlet.greenlet] = set()
        self.paused_until = 0
        self.dead = False


class World:
    """One schedule."""

    def __init__(self, seed: int, profile: Profile) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.profile = profile
        self._trouble = profile.trouble
        layout = self.random.choice(profile.layouts)
        self.roles = {chr(ord("a") + i): ROLES[letter] for i, letter in enumerate(layout)}
        self.stores = {domain: MemoryStore(domain, self) for domain in self.roles}
        self.leaders = [domain for domain, role in self.roles.items() if role is Role.VOTER]
        self.down: dict[str, int] = {}
        self.emptied: set[str] = set()
        self.backup: tuple[str, dict[str, bytes]] | None = None
        self.restored = False
        self.met: set[str] = set()
        self.effects: list[tuple[str, Callable[[], object]]] = []
        self.processes: list[Process] = []
        self.desired = self.leaders[0]
        self.step = 0
        self.calm = True
        self.ids = count(1)
        self.current: Process | None = None
        self.hub = greenlet.getcurrent()
        self.oracle = Oracle(self)
        bootstrap(self.table(Process(0, self.leaders[0])), self.roles, self.new_id, CONVERSION)
        self.oracle.look()

    # What the processes see

    def table(self, process: Process) -> MirroredTable:
        return MirroredTable(
            name=TABLE,
            home=process.domain,
            roots={domain: f"memory://{domain}" for domain in self.stores},
            open_store=lambda uri: self.stores[uri.removeprefix("memory://")],
            live_files=live_files,
            couriers=SimulatedCouriers(self, process),
        )

    # Weather: called by the stores; what an operation is about to take away is looked at first

    def before(self, store: str, operation: str, key: str) -> StoreFault | None:
        process = self._baton()
        if process is None:
            return None
        if store in self.down:
            return StoreFault.LOST
        if operation in ("delete", "replace", "put") and "/_delta_log/" in key:
            self.oracle.about_to_lose(store, key)
        if not self.calm and self.profile.blink and self.random.random() < self.profile.blink:
            self.met.add(StoreFault.ABSENT.value)
            return StoreFault.ABSENT
        if self.calm or self.random.random() >= self.profile.fault:
            return None
        fault = self._one_of(
            [StoreFault.LOST, StoreFault.UNANSWERED, StoreFault.UNANSWERED, StoreFault.LATE, StoreFault.TWICE]
        )
        self.met.add(fault.value)
        return fault

    def after(self, store: str, operation: str, key: str) -> None:
        if operation in ("replace", "create", "put") and key.startswith("register/"):
            self.oracle.look(store)
        if operation in ("replace", "create") and key.endswith("/_last_checkpoint"):
            self.oracle.pointed_at(store, key)
        self._baton()

    def later(self, store: str, effect: Callable[[], object]) -> None:
        self.effects.append((store, effect))

    def _baton(self) -> Process | None:
        process = self.current
        if process is None:
            return None
        if process.dead:
            raise Killed
        if self.random.random() >= self.profile.stay:
            self.hub.switch()
            if process.dead:
                raise Killed
        return process

    # The scheduler

    def run(self) -> None:
        """Run the schedule: the rough part, then calm until the table has moved on."""
        for domain in self.leaders:
            for _ in range(PROCESSES_A_DOMAIN):
                self.spawn(domain)
        self.calm = False
        while self.step < self.profile.steps:
            self._turn()
        # With a root that has forgotten its votes the table may stop, for an operator to say which history
        # counts.
        if not self.restored:
            self._settle_down()
            self.oracle.finish()
        self._kill_all()

    def spawn(self, domain: str) -> Process:
        process = Process(next(self.ids), domain)
        self.processes.append(process)
        self.start(process, lambda: work(self, process))
        return process

    def start(self, process: Process, run: Callable[[], None]) -> greenlet.greenlet:
        def guarded() -> None:
            try:
                run()
            except Killed:
                return
            finally:
                if running in process.greenlets:
                    process.greenlets.remove(running)

        running = greenlet.greenlet(guarded, parent=self.hub)
        process.greenlets.append(running)
        return running

    def _turn(self) -> None:
        self.step += 1
        if not self.calm:
            self._chaos()
        if self.effects and self.random.random() < (0.5 if self.calm else self.profile.late):
            store, effect = self.effects.pop(self.random.randrange(len(self.effects)))
            if store not in self.down:
                effect()
                self.oracle.look(store)
        awake = [process for process in self.processes if process.paused_until <= self.step]
        if not awake:
            self.step = min(process.paused_until for process in self.processes) - 1
        else:
            process = self.current = self._one_of(awake)
            self._one_of([one for one in process.greenlets if one not in process.waiting]).switch()
            self.current = None

    def _one_of(self, things: list[T]) -> T:
        """`random.choice`, at a third of its cost."""
        return things[int(self.random.random() * len(things))]

    def _chaos(self) -> None:
        if self.down:
            self.down = {domain: until for domain, until in self.down.items() if until > self.step}
        pick = self.random.random()
        if pick >= self._trouble:
            return
        for name in _TROUBLES:
            pick -= getattr(self.profile, name)
            if pick < 0:
                self.met.add(name)
                getattr(self, f"_{name}_one")()
                return

    def _kill_one(self) -> None:
        victim = self.random.choice(self.processes)
        self.kill(victim)
        self.spawn(victim.domain)

    def _pause_one(self) -> None:
        steps = self.random.randrange(self.profile.pause_steps)
        self.random.choice(self.processes).paused_until = self.step + steps

    def _outage_one(self) -> None:
        steps = self.random.randrange(self.profile.outage_steps)
        self.down[self.random.choice(list(self.stores))] = self.step + steps

    def _move_one(self) -> None:
        self.desired = self.random.choice(self.leaders)

    def _empty_one(self) -> None:
        if not self.emptied and not self.oracle.one_copy:
            counted = [domain for domain, role in self.roles.items() if role is not Role.LEARNER]
            self.emptied.add(domain := self.random.choice(counted))
            self.stores[domain].files.clear()
            self.oracle.forget(domain)

    def _restore_one(self) -> None:
        """Put a root back as it was a while ago: what it voted for since is forgotten, and only one other
        domain knows it.

        First its backup is made, and another domain goes away. Then that one is back, and the third goes
        away, or no one.
        """
        if self.restored:
            return
        others = self.random.sample(list(self.stores), len(self.stores))
        if self.backup is None:
            domain = others.pop()
            self.backup = domain, dict(self.stores[domain].files)
            self.down[others[0]] = self.step + self.profile.steps
            return
        domain, files = self.backup
        away = [each for each in self.down if each != domain]
        knows = [each for each in self.stores if each not in (domain, *away)]
        self.restored = True
        if self.random.random() < 0.75:
            self.down = dict.fromkeys(knows, self.step + self.profile.outage_steps)
        else:
            self.down.clear()
        # Nothing runs meanwhile: what is under way must not find a register as it read it, and the files
        # gone.
        self.effects.clear()
        for process in list(self.processes):
            self.kill(process)
            self.spawn(process.domain)
        self.stores[domain].files.clear()
        self.stores[domain].files.update(files)
        self.oracle.restored(domain)

    def kill(self, process: Process) -> None:
        process.dead = True
        self.processes.remove(process)
        for one in list(process.greenlets):
            if one:  # begun and not ended
                one.throw(Killed)
        process.greenlets.clear()

    def _kill_all(self) -> None:
        for process in list(self.processes):
            self.kill(process)

    def _settle_down(self) -> None:
        """Nothing fails any more: the table must move on, and every replica catch up."""
        self.calm = True
        self.down.clear()
        for process in self.processes:
            process.paused_until = 0
        while self.effects:
            self._turn()
        self.desired = self.random.choice([domain for domain in self.leaders if self._may_lead(domain)])
        needed = self.oracle.newest_reported + 1
        deadline = self.step + CALM_STEPS
        while self.oracle.newest_reported < needed:
            if self.step > deadline:
                raise Violation(f"no progress: {self.oracle.newest_reported} acknowledged, all domains up")
            self._turn()
        self._kill_all()
        last = Process(next(self.ids), self.desired)
        mirror = Mirror(self.table(last))
        for _ in range(9):
            with suppress(
                MirrorError
            ):  # fenced by a claim that somebody died on: the next claim goes beyond it
                Leadership(mirror).lead(one_copy=self.oracle.one_copy_is_due())
                operate(self, mirror)
                mirror.follow()
                return
        raise Violation("nobody can lead, all domains up")

    def _may_lead(self, domain: str) -> bool:
        """Whether a domain knows itself for a voter: one that was promoted does so from its first vote on."""
        record = self.oracle.record(domain)
        agreed = (
            None if record is None or record.accepted is None else record.accepted.locator.replica(domain)
        )
        return domain not in self.emptied and agreed is not None and agreed.role is Role.VOTER

    def new_id(self) -> str:
        return f"i{next(self.ids)}"


class SimulatedCouriers:
    """Errands as greenlets of their process."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def gather(
        self, errands: Mapping[str, Callable[[], Any]], enough: Callable[[Mapping[str, Any]], bool]
    ) -> dict:
        world, process = self._world, self._process
        if world.current is None:  # the calm end: one after the other
            return {domain: errand() for domain, errand in errands.items()}
        me = greenlet.getcurrent()
        answers: dict[str, Any] = {}
        failures: list[Exception] = []
        pending = set(errands)

        def run(domain: str, errand: Callable[[], Any]) -> None:
            try:
                answers[domain] = errand()
            except Exception as error:  # noqa: BLE001 - handed to the greenlet that waits, which raises it
                failures.append(error)
            pending.discard(domain)
            process.waiting.discard(me)

        for domain, errand in errands.items():
            world.start(process, lambda domain=domain, errand=errand: run(domain, errand))
        impatient = not world.calm and world.random.random() < 0.03
        while pending and not failures and not enough(answers):
            if impatient and answers:
                break
            process.waiting.add(me)
            world.hub.switch()
            if process.dead:
                raise Killed
        if failures:
            raise failures[0]
        return dict(answers)

    def gather_from_all(self, errands: Mapping[str, Callable[[], Any]]) -> dict:
        return self.gather(errands, lambda _: False)


def work(world: World, process: Process) -> None:
    """What a process does until it dies: lead, commit, read."""
    mirror = Mirror(world.table(process))
    leadership, reading = Leadership(mirror), Reading(mirror.table)
    chance = world.random.random
    while True:
        try:
            if process.domain == world.desired or (not world.calm and chance() < world.profile.rogue):
                # Where two copies of the data cannot be had any more, an operator says so.
                lead = leadership.lead(one_copy=world.oracle.one_copy_is_due())
                if world.emptied:
                    operate(world, mirror)
                for _ in range(world.random.randint(1, 3)):
                    lead = commit(world, mirror, leadership, lead)
                if chance() < world.profile.tidy:
                    tidy(world, mirror)
            elif chance() < 0.3:
                read(world, reading)
        except (MirrorError, Unanswered):
            pass
        process.paused_until = world.step + world.random.randrange(60)
        world.hub.switch()
        if process.dead:
            raise Killed


def operate(world: World, mirror: Mirror) -> None:
    """What an operator or the repair sensor does: let emptied domains rejoin, and go back to two copies."""
    membership = Membership(mirror, new_incarnation=world.new_id)
    for domain in membership.forgotten():
        membership.add(domain, witness=world.roles[domain] is Role.WITNESS)
    locator = mirror.leading()[1].locator
    for domain in locator.domains(Role.LEARNER):
        if world.roles[domain] is Role.VOTER:
            membership.promote(domain)
        elif world.roles[domain] is Role.WITNESS:
            membership.promote(domain, witness=True)
    if world.oracle.is_whole(mirror.leading()[1].locator):
        world.emptied.clear()
        membership.set_one_copy(False)


def tidy(world: World, mirror: Mirror) -> None:
    """What the round that looks after replicas does: shorten the logs."""
    state = move_base(mirror, keep=world.random.randint(1, 3), make=make_checkpoint)
    clean(mirror.table, state, limit=world.random.randint(1, 9))


def make_checkpoint(base: Checkpoint | None, entries: Sequence[bytes]) -> Checkpoint:
    """A checkpoint that holds what counts of one: which data files there are."""
    before, chain = (-1, GENESIS) if base is None else (base.version, base.chain)
    live = {} if base is None else {file.path: file.size for file in live_files(base.content)}
    for entry in entries:
        for path in files_removed(entry):
            live.pop(path)
        live |= {file.path: file.size for file in files_named(entry)}
    content = json.dumps(live).encode()
    version = before + len(entries)
    return Checkpoint(version=version, chain=extend_all(chain, entries), content=content, hint={})


def live_files(checkpoint: bytes) -> tuple[NamedFile, ...]:
    return tuple(NamedFile(path, size) for path, size in json.loads(checkpoint).items())


def commit(world: World, mirror: Mirror, leadership: Leadership, lead: Lead) -> Lead:
    """What `delta/write/commit.py` does: plan on the acknowledged head, let Spark commit to the home log,
    push.
    """
    home = mirror.home
    cursor, replaced = 0, ()
    if lead.version >= 0:
        head = home.entry(lead.folder, lead.version)
        if head is None:
            return leadership.lead()
        cursor = rows_of(head)[1]
        replaced = files_named(head) if world.random.random() < 0.3 else ()
    name = f"part-{next(world.ids)}.parquet"
    content = f"rows of {name}".encode()
    entry = b"\n".join(
        json.dumps(action).encode()
        for action in (
            {
                "commitInfo": {
                    "userMetadata": {
                        "epoch": str(lead.epoch),
                        "rows": [cursor, cursor + world.random.randint(1, 3)],
                    }
                }
            },
            *({"remove": {"path": file.path}} for file in replaced),
            {"add": {"path": name, "size": len(content)}},
        )
    )
    home.store.put(f"{home.folder(lead.folder)}/{name}", [content])
    if world.random.random() < 0.5 and leadership.current() != lead:
        return leadership.lead()
    if not home.store.create(home.entry_key(lead.folder, lead.version + 1), entry):
        return leadership.lead()
    mirror.acknowledge(lead, entry)
    world.oracle.reported(lead.version + 1, extend(lead.chain, entry))
    return leadership.current()


def read(world: World, reading: Reading) -> None:
    """A consumer: what it may read is at least what was reported before it asked."""
    before, forks = world.oracle.newest_reported, world.oracle.forks
    binding = reading.bind()
    if world.oracle.forks == forks:
        world.oracle.was_read(binding, at_least=before)


def rows_of(entry: bytes) -> tuple[int, int]:
    first, last = json.loads(entry.splitlines()[0])["commitInfo"]["userMetadata"]["rows"]
    return first, last


class Oracle:
    """Knows what was ever acknowledged, and looks at all stores at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._entries: dict[str, bytes] = {}
        self._before: dict[str, str] = {}
        self._acknowledged: dict[int, str] = {-1: GENESIS}
        self._newest: State | None = None
        self._seen: dict[str, Record] = {}
        self._votes: dict[tuple[str, str], dict[Epoch, State]] = {}
        self._bases = {WHOLE_LOG}
        self._ever = {GENESIS}
        self._may_fork = False
        self.forks = 0
        self.newest_reported = -1

    def record(self, domain: str) -> Record | None:
        key = f"register/{TABLE}.json"
        content = self._world.stores[domain].files.get(key)
        return None if content is None else decode(content, domain=domain, key=key)

    def one_copy_is_due(self) -> bool:
        gone = self._world.emptied & set(self._world.leaders)
        return bool(gone) and len(self._world.leaders) - len(gone) < 2

    @property
    def one_copy(self) -> bool:
        """Whether any register says that one copy is enough: another loss would then be one too many."""
        return any(r.accepted is not None and r.accepted.locator.one_copy for r in self._seen.values())

    def is_whole(self, locator: Locator) -> bool:
        """Whether every replica has its agreed memory and its role again; a change under way is not agreed
        yet.
        """
        if self._newest is None or self._newest.locator != locator:
            return False
        records = {replica.domain: self.record(replica.domain) for replica in locator.replicas}
        return all(
            (record := records[replica.domain]) is not None
            and record.incarnation == replica.incarnation
            and replica.role is self._world.roles[replica.domain]
            for replica in locator.replicas
        )

    def forget(self, domain: str) -> None:
        """A root was emptied."""
        self._seen.pop(domain, None)

    def restored(self, domain: str) -> None:
        """A root was put back as it was: what it voted for since counts no more, and other histories may
        follow from that.

        Whichever it is, a vote is given for what is held, and what is read is what was agreed on at the time.
        """
        self._seen.pop(domain, None)
        record, self._may_fork = self.record(domain), True
        if record is not None:
            self._seen[domain] = record
            cast = {} if record.accepted is None else {record.accepted.epoch: record.accepted}
            self._votes[domain, record.incarnation] = cast

    def _contradicts(self, state: State, *, late: bool) -> bool:
        """Whether an acknowledged state is not part of the history, and does not go on from it."""
        if late:
            return self._acknowledged.get(state.version) != state.chain
        if state.version >= 0 and self._before[state.chain] != self._acknowledged.get(state.version - 1):
            return True
        newest = max(self._acknowledged)
        return self._acknowledged.get(state.version, state.chain) != state.chain or newest > state.version

    def _fork_to(self, state: State) -> None:
        """Go on with another history, which a majority with the forgetful root has acknowledged."""
        self.forks += 1
        self._world.met.add("forked")
        chain, history = state.chain, {}
        for version in range(state.version, -1, -1):
            history[version], chain = chain, self._before.get(chain, GENESIS)
        self._acknowledged = {-1: GENESIS, **history}
        self._ever |= set(history.values())
        self._newest = state
        self.newest_reported = min(self.newest_reported, state.version)

    def look(self, changed: str | None = None) -> None:
        """Compare all registers with the history."""
        domains = [changed] if changed else list(self._world.stores)
        for domain in domains:
            record = self.record(domain)
            before = self._seen.get(domain)
            if record is None or record == before:
                continue
            self._seen[domain] = record
            if record.accepted is not None and (before is None or record.accepted != before.accepted):
                self._expect_held(domain, record, record.accepted)
                self._votes.setdefault((domain, record.incarnation), {})[record.accepted.epoch] = (
                    record.accepted
                )
                self._judge(record.accepted)
            self._expect_published(domain, record)
            if before is not None and record.published.folder > before.published.folder:
                self._world.met.add("rebuilt")
                if self._begins_later(domain, record):
                    self._world.met.add("snapshot")
            self._expect_log_from_a_base(domain, record, before)

    def reported(self, version: int, chain: str) -> None:
        """A process was told that a version is acknowledged."""
        if self._acknowledged.get(version) == chain:
            self.newest_reported = max(self.newest_reported, version)
        elif not self.forks or chain not in self._ever:
            raise Violation(f"version {version} was reported as acknowledged and is not")

    def was_read(self, binding: Any, at_least: int) -> None:
        # Two of three have forgotten what was reported; as long as they do not go on from there, it is not
        # lost.
        if binding.version < at_least and not self._may_fork:
            raise Violation(f"version {binding.version} was read after {at_least} had been reported")
        if self._acknowledged.get(binding.version) != binding.chain:
            raise Violation(f"version {binding.version} was read and is not acknowledged")
        if binding.version < self.base.first:
            return  # so slow a reader that the log begins later by now
        files = self._world.stores[binding.domain].files
        if binding.domain not in self._world.emptied:
            self._expect_log(files, binding.folder, binding.version, binding.domain)

    def finish(self) -> None:
        """At the calm end: every replica holds the history, and the rows are those of a run without
        faults.
        """
        newest = max(self._acknowledged)
        if newest < self.newest_reported:
            raise Violation("a reported version is not in the history")
        for domain in self._world.stores:
            record = self.record(domain)
            if domain in self._world.emptied:
                continue
            if record is None or record.published.version != newest:
                raise Violation(f"{domain} has not caught up to {newest}")
            replica = ReplicaStore(self._world.stores[domain], table=TABLE, domain=domain)
            self._expect_log(
                self._world.stores[domain].files, replica.folder(record.published.folder), newest, domain
            )
        cursor = 0
        for version in range(newest + 1):
            first, cursor_after = rows_of(self._entries[self._acknowledged[version]])
            if first != cursor:
                raise Violation(f"version {version} has rows from {first}, the one before ended at {cursor}")
            cursor = cursor_after

    def about_to_lose(self, domain: str, key: str) -> None:
        """A log entry is to be removed or replaced: it must not be one that is published."""
        record = self.record(domain)
        entry = self._world.stores[domain].files.get(key)
        if record is None or entry is None:
            return
        folder = ReplicaStore(self._world.stores[domain], table=TABLE, domain=domain).folder(
            record.published.folder
        )
        if not key.startswith(f"{folder}/") or key.endswith("_last_checkpoint"):
            return
        version = int(key.rpartition("/")[2][:20])
        if version < self.base.first:
            self._world.met.add("shortened")
            # It may not have voted for the newest base yet, and lose what lies before the one it holds.
            self._expect_one_of([base for base in self._bases if base.first > version], domain, record)
        elif version <= record.published.version:
            raise Violation(f"{domain} is about to lose its published entry or checkpoint {version}")

    def pointed_at(self, domain: str, key: str) -> None:
        """What `_last_checkpoint` names is there, says what the log says, and is marked: without that it is
        damage.
        """
        store, record = self._world.stores[domain], self.record(domain)
        files = store.files
        pointer = files.get(key)
        if pointer is None or record is None:
            # The operation comes late, or into a root that was emptied meanwhile, whose folders are not used
            # again.
            return
        folder = ReplicaStore(store, table=TABLE, domain=domain).folder(record.published.folder)
        if not key.startswith(f"{folder}/"):
            return
        hint = json.loads(pointer)
        version = hint["version"]
        content = files.get(f"{key.removesuffix('_last_checkpoint')}{version:020d}.checkpoint.parquet")
        if content != self._live_at(version):
            raise Violation(
                f"{domain} points at checkpoint {version}, which is gone or not what the log says"
            )
        mark = {"etlAssets.chain": self._acknowledged[version], "etlAssets.sha256": digest(content)}
        if hint.get("tags") != mark:
            raise Violation(f"{domain} points at checkpoint {version} without the mark of it")
        self._world.met.add("pointed at")

    def _expect_held(self, domain: str, record: Record, state: State) -> None:
        """A vote is given for what is there: the entry, and its data."""
        if state.version < 0:
            return
        store = self._world.stores[domain]
        replica = ReplicaStore(store, table=TABLE, domain=domain)
        folder = record.published.folder
        held = [
            store.files.get(replica.entry_key(folder, state.version)),
            store.files.get(replica.staged_key(state.version, state.chain)),
        ]
        before = self._before.get(state.chain) or self._acknowledged.get(state.version - 1)
        if (self._world.restored and before is None) or self.forks:
            # It may go on from the other history, without ever being acknowledged.
            before = next(
                (
                    chain
                    for chain in [before, *self._ever]
                    for one in held
                    if chain is not None and one is not None and extend(chain, one) == state.chain
                ),
                before,
            )
        if before is None:
            raise Violation(f"{domain} voted for {state.version} before {state.version - 1} was acknowledged")
        entry = next((one for one in held if one is not None and extend(before, one) == state.chain), None)
        if entry is None:
            raise Violation(f"{domain} voted for version {state.version} and does not hold it")
        self._entries[state.chain] = entry
        self._before[state.chain] = before
        if self._world.roles[domain] is not Role.WITNESS:
            self._expect_data(store.files, replica.folder(folder), entry, domain)

    def _judge(self, state: State) -> None:
        """Whether a vote has acknowledged a state, and whether the history allows it.

        A vote that was cast counts, whatever became of the voter.
        """
        votes = []
        for replica in state.locator.replicas:
            cast = self._votes.get((replica.domain, replica.incarnation), {}).get(state.epoch)
            if cast is not None and cast.covers(state):
                votes.append(replica.domain)
        if not state.locator.has_quorum(votes):
            return
        newest = self._newest
        late = newest is not None and state.order <= newest.order
        if self._may_fork and self._contradicts(state, late=late):
            self._fork_to(state)
            return
        if late:
            # Votes that came together late: what a later leader has adopted, or nothing.
            if self._contradicts(state, late=True):
                raise Violation(f"epoch {state.epoch} got an acknowledgement after {newest}")
            return
        self._newest = state
        self._bases.add(state.base)
        self._ever.add(state.chain)
        known = self._acknowledged.setdefault(state.version, state.chain)
        if known != state.chain:
            raise Violation(f"version {state.version} was acknowledged with two contents")
        if max(self._acknowledged) > state.version:
            raise Violation(f"epoch {state.epoch} goes on from {state.version}, later ones were acknowledged")
        if state.version >= 0 and self._before[state.chain] != self._acknowledged.get(state.version - 1):
            raise Violation(f"version {state.version} does not follow on the acknowledged one before it")

    def _expect_published(self, domain: str, record: Record) -> None:
        at = record.published
        if self._acknowledged.get(at.version) != at.chain and not (self.forks and at.chain in self._ever):
            raise Violation(f"{domain} published version {at.version}, which is not acknowledged")

    @property
    def base(self) -> Base:
        """Where the log begins, as was agreed last."""
        return WHOLE_LOG if self._newest is None else self._newest.base

    def _begins_later(self, domain: str, record: Record) -> bool:
        store = self._world.stores[domain]
        first = ReplicaStore(store, table=TABLE, domain=domain).entry_key(record.published.folder, 0)
        return record.published.version >= 0 and first not in store.files

    def _expect_log_from_a_base(self, domain: str, record: Record, before: Record | None) -> None:
        """A vote is given by who holds the log from the base on; a folder begins there, or at one agreed on
        since.
        """
        if record.accepted is None:
            return
        voted, bases = record.accepted.base, [None, None]
        if before is not None:
            bases = [None if each.accepted is None else each.accepted.base for each in (record, before)]
        if bases[0] != bases[1]:
            self._expect_base(domain, record, voted)
        elif before is not None and record.published.folder > before.published.folder:
            later = [base for base in self._bases if base.first > voted.first]
            self._expect_one_of([voted, *later], domain, record)

    def _expect_one_of(self, bases: Iterable[Base], domain: str, record: Record) -> None:
        for base in bases:
            with suppress(Violation):
                self._expect_base(domain, record, base)
                return
        raise Violation(f"{domain} has or keeps a log that begins where nothing was agreed on")

    def _expect_base(self, domain: str, record: Record, base: Base) -> None:
        """Whoever has voted for a base holds the log from there on, and its checkpoint."""
        store = self._world.stores[domain]
        folder = ReplicaStore(store, table=TABLE, domain=domain).folder(record.published.folder)
        for version in range(base.first, record.published.version + 1):
            if f"{folder}/_delta_log/{version:020d}.json" not in store.files:
                raise Violation(f"{domain} is to hold the log from {base.first} on and lacks {version}")
        if base.first and self._world.roles[domain] is not Role.WITNESS:
            content = store.files.get(f"{folder}/_delta_log/{base.first:020d}.checkpoint.parquet")
            if content is None or digest(content) != base.checkpoint:
                raise Violation(f"{domain} is to hold the checkpoint {base.first} and does not")

    def _expect_log(self, files: Mapping[str, bytes], folder: str, upto: int, domain: str) -> None:
        """A replica can be opened, and what is opened is the acknowledged history."""
        log = f"{folder}/_delta_log/"
        entries = {version: files.get(f"{log}{version:020d}.json") for version in range(upto + 1)}
        for version, entry in entries.items():
            if entry is not None and entry != self._entries[self._acknowledged[version]]:
                raise Violation(f"{domain} does not hold the acknowledged version {version} in {folder}")
        missing = max((version for version, entry in entries.items() if entry is None), default=-1)
        if self._world.roles[domain] is Role.WITNESS:
            if missing >= self.base.first:
                raise Violation(f"{domain} lacks version {missing}, and the log begins at {self.base.first}")
            return
        first = 0 if missing < 0 else self._expect_snapshot(files, folder, missing, upto, domain)
        for version in range(first, upto + 1):
            self._expect_data(files, folder, entries[version] or b"", domain)

    def _expect_snapshot(
        self, files: Mapping[str, bytes], folder: str, missing: int, upto: int, domain: str
    ) -> int:
        """A checkpoint stands for the entries that are missing, and its data is there; its version."""
        names = {
            version: f"{folder}/_delta_log/{version:020d}.checkpoint.parquet" for version in range(upto + 1)
        }
        first = max((version for version, name in names.items() if name in files), default=-1)
        if first < missing:
            raise Violation(f"{domain} lacks version {missing} and cannot be opened")
        live = self._live_at(first)
        if files[names[first]] != live:
            raise Violation(f"the checkpoint {first} in {domain} is not what the log says")
        for file in live_files(live):
            if f"{folder}/{file.path}" not in files:
                raise Violation(f"{domain} lacks the data file {file.path}")
        return first

    def _live_at(self, version: int) -> bytes:
        entries = [self._entries[self._acknowledged[each]] for each in range(version + 1)]
        return make_checkpoint(None, entries).content

    def _expect_data(self, files: Mapping[str, bytes], folder: str, entry: bytes, domain: str) -> None:
        for action in map(json.loads, entry.splitlines()):
            if "add" in action and f"{folder}/{action['add']['path']}" not in files:
                raise Violation(f"{domain} lacks the data file {action['add']['path']}")


def first_violation(
    seeds: Iterable[int], profile: Profile, during: Callable[[], AbstractContextManager[None]] = nullcontext
) -> tuple[int, Violation] | None:
    """Run schedules until one violates an invariant: its seed, and what it violated."""
    for seed in seeds:
        world = World(seed, profile)
        with during():
            try:
                world.run()
            except Violation as violation:
                return seed, violation
    return None
