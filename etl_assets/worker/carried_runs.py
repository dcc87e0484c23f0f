"""The runs that a worker carries, and which pipelines it may work on: what run control says, obeyed.

Belongs here: claims, heartbeats, progress and the end of runs, and the states as of the last look. Does not
belong here: the work (`worker.py`), when a run has carried everything (`run_ends.py`), and what an action
does to a state (`control/`).

One thread looks at the store. The threads that work ask what it has seen, so none of them waits for the
store.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from etl_assets.control.known_states import KnownStates, keep_states, last_known, was_controlled
from etl_assets.control.states import ControlState
from etl_assets.delta.run_token import RunToken
from etl_assets.errors import (
    ControlStoreUnavailable,
    ControlStoreUnusable,
    EtlAssetsError,
    LeaseLost,
    TransitionRefused,
)
from etl_assets.steps.step import logger

if TYPE_CHECKING:
    from etl_assets.control.records import RunLease
    from etl_assets.control.run_controls import RunControls
    from etl_assets.control.store import ControlStore
    from etl_assets.settings import Settings

LOOK_SECONDS = 1.0
"""Between two looks at the store, at most."""
_RELEASE_SECONDS = 5.0
"""How long a process that leaves waits for the store to take its runs back."""
_WAIT_SECONDS = 2.0
"""How long a thread that has committed a batch waits for the next look, so that a pause stops it."""


@dataclass(slots=True, kw_only=True)
class CarriedRun:
    """A run that this process carries.

    Attributes:
        lease: Its lease.
        begun: When this process took it.
        beat_at: Monotonic time before the last heartbeat that the store took.
        state: State of its pipeline at that time.
        error: What ended the attempt, if it failed.
        is_complete: Whether everything is carried.
        batches: Batches committed that the store does not know of yet.
        rows: Rows of them.
        seconds: Time that they took.
        progress: Notes of the caller, about how far the run has come.
    """

    lease: RunLease
    begun: dt.datetime
    beat_at: float
    state: ControlState = ControlState.RUNNING
    error: Exception | None = None
    is_complete: bool = False
    batches: int = 0
    rows: int = 0
    seconds: float = 0.0
    progress: dict[str, float] = field(default_factory=dict)

    @property
    def token(self) -> RunToken:
        """The fencing token of its work."""
        lease = self.lease
        return RunToken(pipeline=lease.pipeline, token=lease.token, lost=lease.lost_token)

    def may_go_on(self, now: float) -> bool:
        """Return whether another batch may begin: the lease holds, and nothing asks to stop."""
        is_held = now - self.beat_at < self.lease.lease_seconds
        return is_held and self.state is ControlState.RUNNING and self.error is None and not self.is_complete


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPermit:
    """Whether a pipeline may be worked on during a block, and under which token.

    Attributes:
        is_given: Whether it may.
        token: Token of the run that the work belongs to; None for work of no run.
    """

    is_given: bool
    token: RunToken | None = None

    def __bool__(self) -> bool:
        return self.is_given


class CarriedRuns:
    """Claim runs, keep their leases alive, and say which pipelines may be worked on.

    Args:
        settings: The platform file.
        runner: Name of this process.
        pipelines: Returns the names of the pipelines whose runs it can carry.
        begun: Called with the pipeline of a run when it is claimed.
        follows: Returns whether a pipeline is worked on without a run; one with a schedule is not.
        clock: Monotonic clock, in seconds.
    """

    def __init__(
        self,
        settings: Settings,
        runner: str,
        *,
        pipelines: Callable[[], Collection[str]],
        begun: Callable[[str], object] = lambda pipeline: None,
        follows: Callable[[str], bool] = lambda pipeline: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._runner, self._pipelines = settings, runner, pipelines
        self._begun, self._follows, self._clock = begun, follows, clock
        self._store: ControlStore | None = None
        self._controls: RunControls | None = None
        self._known = KnownStates()
        self._runs: dict[str, CarriedRun] = {}
        self._busy: Counter[str] = Counter()
        self._looks, self._is_looking = 0, False
        self._lock = threading.Condition()
        self._wanted = threading.Event()

    # For the threads that work.

    @contextmanager
    def working_on(self, pipeline: str) -> Generator[WorkPermit]:
        """Hold off the end of a pause or cancellation during a block, and say whether it may work at all.

        The whole block works under the token of its beginning, also if the run is lost in between.
        """
        with self._lock:
            run = self._runs.get(pipeline)
            if run is None:
                may = self._known.of(pipeline).is_followed and self._follows(pipeline)
            else:
                may = run.may_go_on(self._clock())
            self._busy[pipeline] += may
        try:
            yield WorkPermit(is_given=may, token=None if run is None else run.token)
        finally:
            with self._lock:
                self._busy[pipeline] -= may

    def run_of(self, pipeline: str) -> CarriedRun | None:
        """Return the run of a pipeline that this process carries; None if it carries none."""
        with self._lock:
            return self._runs.get(pipeline)

    def add_rows(self, pipeline: str, rows: int, commits: int) -> None:
        """Count rows that a batch has read and committed."""
        with self._lock:
            if (run := self._runs.get(pipeline)) is not None:
                run.rows += rows
                run.progress["read"] = run.progress.get("read", 0) + rows
                run.progress["commits"] = run.progress.get("commits", 0) + commits

    def add_batch(self, pipeline: str, seconds: float) -> None:
        """Count a batch, and the time that it took."""
        with self._lock:
            if (run := self._runs.get(pipeline)) is not None:
                run.batches, run.seconds = run.batches + 1, run.seconds + seconds

    def wait_for_look(self, pipeline: str) -> None:
        """Between two batches of a run, wait for a look at the state, which may ask to stop."""
        with self._lock:
            if pipeline not in self._runs:
                return
            # A look that is under way may have read the state before this batch ended.
            wanted = self._looks + (2 if self._is_looking else 1)
            self._wanted.set()
            self._lock.wait_for(lambda: self._looks >= wanted, timeout=_WAIT_SECONDS)

    def fail(self, pipeline: str | None, error: Exception) -> None:
        """End the attempt of a pipeline's run by an error, if this process carries one."""
        with self._lock:
            run = None if pipeline is None else self._runs.get(pipeline)
            if run is not None and run.error is None and not run.is_complete:
                run.error = error

    def complete(self, pipeline: str) -> None:
        """Let the run of a pipeline succeed."""
        with self._lock:
            if (run := self._runs.get(pipeline)) is not None and run.error is None:
                run.is_complete = True

    # For the thread that looks at the store.

    def look_and_wait(self) -> None:
        """Look at the store, and wait until the next look is due, or a batch has ended."""
        self.look()
        self._wanted.wait(min(LOOK_SECONDS, self._settings.control.lease_seconds / 4))

    def wake(self) -> None:
        """Let the next look begin now."""
        self._wanted.set()

    def look(self) -> None:
        """Look at the store once: heartbeats, ends of runs, claims, states.

        While it does not answer, the states stay as they were known last, and runs stop with their leases.
        """
        with self._lock:
            self._is_looking = True
            self._wanted.clear()
        try:
            if self._controls is None and was_controlled(self._settings):
                self._open()
            if self._controls is not None:
                self._look(self._controls)
        except (ControlStoreUnavailable, ControlStoreUnusable) as error:
            self._unknown(error)
        finally:
            with self._lock:
                self._looks, self._is_looking = self._looks + 1, False
                self._lock.notify_all()

    def release(self) -> None:
        """Give runs back, because this process leaves: another one goes on at once.

        A run of which a step is still under way is kept until its lease has expired, and so are all of them
        if the store hangs.
        """
        thread = threading.Thread(target=self._release, name="release", daemon=True)
        thread.start()
        thread.join(_RELEASE_SECONDS)

    def _release(self) -> None:
        for pipeline, run in tuple(self._runs.items()):
            if self._busy[pipeline]:
                continue
            with suppress(EtlAssetsError):  # another runner then goes on once the lease has expired
                if self._controls is not None:
                    self._controls.release(run.lease)
        if self._store is not None:
            self._store.close()

    def _open(self) -> None:
        from etl_assets.control.run_controls import RunControls
        from etl_assets.control.store import open_store

        self._store = open_store(self._settings)
        self._controls = RunControls(
            self._store,
            lease_seconds=self._settings.control.lease_seconds,
            monotonic=self._clock,
            home=self._settings.home.resolve(),
        )

    def _look(self, controls: RunControls) -> None:
        for pipeline, run in tuple(self._runs.items()):
            try:
                if self._beat(controls, run):
                    self._drop(pipeline)
            except LeaseLost as error:
                logger.warning("%s", error)
                self._drop(pipeline)
        names, before_claim = self._pipelines(), self._clock()
        while (lease := controls.claim(self._runner, names)) is not None:
            self._take(lease, before_claim)
            before_claim = self._clock()
        known = keep_states(self._settings.home, controls.all())
        with self._lock:
            before, self._known = self._known, known
        if before.problem is not None:
            logger.warning("the control store answers again")
        self._tell(before, known)

    def _beat(self, controls: RunControls, run: CarriedRun) -> bool:
        """Send a heartbeat with the progress, and end the run if its time has come; return whether it has."""
        # 1. What is sent is no longer to be sent, unless it was lost.
        with self._lock:
            sent = run.batches, run.rows, run.seconds
            run.batches, run.rows, run.seconds = 0, 0, 0.0
        before = self._clock()
        try:
            state = controls.report_progress(
                run.lease, batches=sent[0], rows_committed=sent[1], seconds=sent[2]
            )
        except ControlStoreUnavailable:
            with self._lock:
                run.batches, run.rows, run.seconds = (
                    run.batches + sent[0],
                    run.rows + sent[1],
                    run.seconds + sent[2],
                )
            raise
        # 2. From here on no step begins if the state asks to stop. The ones under way are waited for.
        with self._lock:
            run.beat_at, run.state = before, state
            is_unreported = bool(run.batches or run.rows)
            if self._busy[run.lease.pipeline] or is_unreported:
                return False
            error, is_complete = run.error, run.is_complete
        # 3. The end of the run, or of this attempt.
        if error is not None:
            after = controls.fail(run.lease, error)
        elif is_complete:
            after = controls.finish(run.lease)
        elif state is not ControlState.RUNNING:
            try:
                after = controls.stop(run.lease)
            except TransitionRefused:  # the pause was withdrawn
                return False
        else:
            return False
        logger.warning("the run %s of %s has ended: %s", run.lease.run_id, run.lease.pipeline, after.state)
        return True

    def _take(self, lease: RunLease, beat_at: float) -> None:
        logger.warning("carrying the run %s of %s, attempt %d", lease.run_id, lease.pipeline, lease.attempt)
        self._begun(lease.pipeline)
        with self._lock:
            self._runs[lease.pipeline] = CarriedRun(
                lease=lease, begun=dt.datetime.now(dt.UTC), beat_at=beat_at
            )

    def _drop(self, pipeline: str) -> None:
        with self._lock:
            # Until the states are read again, nothing is known that lets the pipeline be followed.
            states = {**self._known.by_pipeline, pipeline: ControlState.RUNNING}
            self._known = replace(self._known, by_pipeline=states)
            del self._runs[pipeline]

    def _unknown(self, error: EtlAssetsError) -> None:
        with self._lock:
            before = self._known
            known = before if before.as_of is not None else last_known(self._settings.home, "")
            self._known = replace(known, problem=error.message)
        if before.problem is None:
            logger.warning("%s; pipelines are followed as they were known last", error)

    def _tell(self, before: KnownStates, after: KnownStates) -> None:
        for name in sorted(before.by_pipeline.keys() | after.by_pipeline.keys()):
            was, now = before.of(name), after.of(name)
            if was.is_followed != now.is_followed and not now.has_runner and not was.has_runner:
                logger.warning(
                    "%s is %s: it is %s", name, now, "followed" if now.is_followed else "left alone"
                )
