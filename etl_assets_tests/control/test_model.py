"""The store does what a plain model does, for any order of actions, with kills between any two statements."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import event

from etl_assets.control.records import RunLease
from etl_assets.control.run_controls import RunControls
from etl_assets.control.schema import METADATA
from etl_assets.control.states import ControlState
from etl_assets.control.store import ControlStore
from etl_assets.control.transitions import TRANSITIONS
from etl_assets.errors import InputError, LeaseLost, SourceUnavailable, TransitionRefused
from etl_assets_tests.control.model import ModelPipeline, later

LEASE = 10.0
PASSING = SourceUnavailable("the source is away", fix="bring it back", source="s")
FOR_GOOD = InputError("a file is broken", fix="write it again")
# Before which statement of the action the process is killed; 0 is before the commit, None never.
KILLS = st.one_of(st.none(), st.integers(0, 9))
PICKS = st.integers(0, 9)
CLIENT_ACTIONS = ("pause", "resume", "cancel", "retry")
ENDS = ("finish", "stop", "passing", "for good", "release")
WALK_STEPS = 700
SEED = 5
WEIGHTS = {"run": 20, "act": 25, "claim": 30, "report": 4, "end": 18, "killed": 3, "late": 3, "time": 5}
"""How often each step of a long way is taken."""


class Killed(BaseException):
    """The process ends here."""


class Killer:
    """Ends the transaction of a store as a SIGKILL would: before a statement, or before the commit."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine, self.at, self.number = engine, None, 0
        event.listen(engine, "before_cursor_execute", self._statement)
        event.listen(engine, "commit", self._commit)

    @contextmanager
    def armed(self, at: int | None) -> Generator[None]:
        self.at, self.number = at, 0
        try:
            yield
        finally:
            self.at = None

    def _statement(self, *of_statement: object) -> None:
        self.number += 1
        if self.at is not None and self.number == self.at:
            raise Killed

    def _commit(self, connection: sa.Connection) -> None:
        if self.at == 0:
            raise Killed


class Machine(RuleBasedStateMachine):
    """Two pipelines in one store, several controls over it, and one runner for each lease."""

    store: ControlStore
    killer: Killer
    clock: list[dt.datetime]

    @initialize()
    def begin(self) -> None:
        with self.store.writing() as connection:
            for table in METADATA.sorted_tables:
                connection.execute(sa.delete(table))
        self.now = 0.0
        self.clock[0] = later(0)
        self.models = {"p": ModelPipeline(), "q": ModelPipeline()}
        self.leases: dict[str, RunLease] = {}
        self.former: list[RunLease] = []
        self.asked: list[str] = []
        self.controls = self._process()

    def _process(self) -> RunControls:
        return RunControls(self.store, lease_seconds=LEASE, monotonic=lambda: self.now, jitter=lambda: 1.0)

    def _do(self, name: str, done: Callable[[], object], model: Callable[[ModelPipeline], object], kill):
        """Do the same to store and model; after a kill, the store is as before or as after."""
        before, after = self.models[name], self.models[name].copy()
        allowed = model(after) is not False
        try:
            with self.killer.armed(kill):
                result = done()
            assert allowed
            self.models[name] = after
            return result
        except TransitionRefused:
            assert not allowed
        except Killed:
            found = self._view(name)
            assert found in (before.view(), after.view())
            # A kill at the commit or before is one before the change; later statements only read.
            self.models[name] = after if allowed and found == after.view() else before
            self.controls = self._process()
        return None

    def _view(self, name: str) -> tuple[object, ...]:
        found = self.controls.state_of(name)
        runs = {run.id: run for run in self.controls.runs(name, limit=1_000)}
        shown = [
            None if each is None else (runs[each].status.value, runs[each].attempts, runs[each].token > 0)
            for each in (found.run_id, found.requested_run_id)
        ]
        can_wait = found.state in (ControlState.RUN_REQUESTED, ControlState.FAILED)
        waits = can_wait and found.run_id is not None and runs[found.run_id].next_attempt_at is not None
        named = (found.run_id, found.requested_run_id)
        over = sorted(run.status.value for run in runs.values() if run.id not in named)
        return (found.state.value, *shown, waits, found.token, over)

    @rule(name=st.sampled_from(["p", "q"]), kill=KILLS)
    def ask_for_a_run(self, name, kill):
        made = self._do(name, lambda: self.controls.request_run(name, "alice"), ModelPipeline.run, kill)
        if made is not None:
            self.asked.append(made.id)

    @rule(
        name=st.sampled_from(["p", "q"]),
        kill=KILLS,
        action=st.sampled_from(CLIENT_ACTIONS),
    )
    def act(self, name, action, kill):
        self._do(
            name,
            lambda: getattr(self.controls, action)(name, "bob", "why"),
            getattr(ModelPipeline, action),
            kill,
        )

    @rule()
    def claim(self):
        """The runner takes what the model says that it can, if anything."""
        for model in self.models.values():
            model.wake(self.now)
        possible = {name for name, model in self.models.items() if model.can_be_claimed(self.now)}
        lease = self.controls.claim("runner")
        assert (lease is None) == (not possible)
        if lease is not None:
            assert lease.pipeline in possible
            self.models[lease.pipeline].claim()
            self.leases[lease.pipeline] = lease

    @precondition(lambda self: self.leases)
    @rule(pick=PICKS, kill=KILLS)
    def report(self, pick, kill):
        lease = self._picked(pick)
        try:
            with self.killer.armed(kill):
                state = self.controls.report_progress(lease, batches=1, rows_committed=5, seconds=0.5)
            assert state.value == self.models[lease.pipeline].state
        except Killed:
            pass

    @precondition(lambda self: self.leases)
    @rule(pick=PICKS, kill=KILLS, how=st.sampled_from(ENDS))
    def end(self, pick, kill, how):
        lease = self._picked(pick)
        name, model = lease.pipeline, self.models[lease.pipeline]
        before = model.token
        attempt, now = lease.attempt, self.now
        repeats = how == "passing" and attempt < 3

        def of_model(model: ModelPipeline) -> bool:
            match how:
                case "finish":
                    model.finish()
                case "release":
                    model.release()
                case "stop":
                    if model.state == "RUNNING":
                        return False
                    model.release()
                case "for good":
                    model.leave(failed=True)
                case _:
                    wait = float(2 ** (attempt - 1)) if repeats else 300.0
                    model.leave(failed=not repeats, waits_until=now + wait, timed=not repeats)
            return True

        def of_store() -> object:
            if how in ("passing", "for good"):
                return self.controls.fail(lease, PASSING if how == "passing" else FOR_GOOD)
            return getattr(self.controls, how)(lease)

        self._do(name, of_store, of_model, kill)
        assert self.models[name].token == before
        if self.models[name].state not in ("RUNNING", "PAUSE_REQUESTED", "CANCEL_REQUESTED"):
            self.former.append(self.leases.pop(name))

    def _picked(self, pick: int) -> RunLease:
        return self.leases[sorted(self.leases)[pick % len(self.leases)]]

    @precondition(lambda self: self.leases)
    @rule()
    def all_runners_are_killed(self):
        """They are noticed after the length of a lease; a runner that then wakes up can do nothing."""
        self.controls.recover("observer")
        self.now += LEASE + 1
        self.clock[0] = later(self.now)
        self.controls.recover("observer")
        for name, lease in self.leases.items():
            self.models[name].lose()
            self.former.append(lease)
        self.leases.clear()
        for model in self.models.values():
            model.wake(self.now)

    @precondition(lambda self: self.former)
    @rule(pick=PICKS)
    def a_former_runner_wakes_up(self, pick):
        lease = self.former[pick % len(self.former)]
        for late in (self.controls.heartbeat, self.controls.finish, self.controls.release):
            with pytest.raises(LeaseLost):
                late(lease)

    @rule(seconds=st.sampled_from([0.4, 1.0, 2.5, 400.0]))
    def time_passes(self, seconds):
        """Runners that live send heartbeats."""
        for _ in range(2):
            self.now += min(seconds, LEASE) / 2
            for lease in self.leases.values():
                self.controls.heartbeat(lease)
            self.controls.recover("observer")
            for model in self.models.values():
                model.wake(self.now)
        if seconds > LEASE:
            self.controls = self._process()
            self.now += seconds
        self.clock[0] = later(self.now)

    def teardown(self):
        if not hasattr(self, "models"):
            return
        for name, model in self.models.items():
            assert self._view(name) == model.view()
            entries = self.controls.history(name, limit=10_000)[::-1]
            # The history tells an unbroken story, of which the row is the end.
            assert [entry.start for entry in entries[1:]] == [entry.end for entry in entries[:-1]]
            assert not entries or entries[-1].end is self.controls.state_of(name).state
            assert len(entries) == self.controls.state_of(name).revision
            tokens = [entry.token for entry in entries]
            assert tokens == sorted(tokens)
        known = {run.id for run in self.controls.runs(limit=10_000)}
        assert set(self.asked) <= known, "no request is lost"


@pytest.fixture
def machine(open_again):
    """The machine over one of the stores, with a clock that it sets."""
    clock = [later(0)]
    store = open_again(lambda connection: clock[0])
    return type("M", (Machine,), {"store": store, "killer": Killer(store.engine), "clock": clock})


def test_the_store_does_what_the_model_does(machine):
    """Short ways, of which hypothesis finds the shortest that fails."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def _take(walk: Machine, step: str, chance: random.Random) -> None:
    """Take one step of a long way, if it is possible."""
    name, pick = chance.choice("pq"), chance.randrange(10)
    kill = chance.randrange(10) if chance.random() < 0.2 else None
    match step:
        case "run":
            walk.ask_for_a_run(name=name, kill=kill)
        case "act":
            walk.act(name=name, action=chance.choice(CLIENT_ACTIONS), kill=kill)
        case "claim":
            walk.claim()
        case "report" if walk.leases:
            walk.report(pick=pick, kill=kill)
        case "end" if walk.leases:
            walk.end(pick=pick, kill=kill, how=chance.choice(ENDS))
        case "killed" if walk.leases:
            walk.all_runners_are_killed()
        case "late" if walk.former:
            walk.a_former_runner_wakes_up(pick=pick)
        case "time":
            walk.time_passes(seconds=chance.choice((0.4, 1.0, 2.5, 400.0)))


def test_the_store_does_what_the_model_does_on_a_long_way(machine):
    """A long way reaches what short ones seldom do; the seed repeats it."""
    chance, walk = random.Random(SEED), machine()
    walk.begin()
    for _ in range(WALK_STEPS):
        _take(walk, chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0], chance)
        for name, model in walk.models.items():
            assert walk._view(name) == model.view()
    walk.teardown()
    entries = walk.controls.history(limit=10_000)
    done = {f"{entry.start} {entry.action}" for entry in entries}
    rows = {f"{row.start} {row.action}" for row in TRANSITIONS if row.start is not row.end}
    assert len(rows - done) <= len(rows) / 4, f"a way through too little; not tried: {rows - done}"


def test_the_model_knows_every_state():
    states = {"IDLE"}
    for actions in (
        ["run"], ["run", "claim"], ["run", "claim", "pause"], ["pause"], ["run", "claim", "cancel"],
        ["run", "cancel"], ["run", "claim", "fail"],
    ):  # fmt: skip
        model = ModelPipeline()
        for action in actions:
            model.leave(failed=True) if action == "fail" else getattr(model, action)()
        states.add(model.state)
    assert states == {state.value for state in ControlState}
