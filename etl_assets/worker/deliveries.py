"""Deliveries of the worker: one thread for each sink that lacks something, behind its circuit breaker.

Belongs here: which sink is delivered to when, and what is said of one that is down. Does not belong here: the
step (`steps/deliver.py`), its repetitions (`step_runner.py`), and the breaker's states
(`sinks/circuit_breaker.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

from etl_assets.error_policy import told
from etl_assets.errors import EtlAssetsError
from etl_assets.observability.undelivered import undelivered
from etl_assets.sensors.alerts import AlertKind, write_alert
from etl_assets.sinks.circuit_breaker import (
    CircuitState,
    after_failure,
    read_circuits,
    write_circuits,
)
from etl_assets.sinks.slow_sinks import read_slow_sinks, write_slow_sinks
from etl_assets.steps.placing import once_led
from etl_assets.steps.step import logger
from etl_assets.worker.carried_runs import WorkPermit
from etl_assets.worker.pauses import backoff_seconds

if TYPE_CHECKING:
    from etl_assets.delta.run_token import RunToken
    from etl_assets.settings import Settings
    from etl_assets.worker.step_runner import StepOutcome

MAX_DELIVERIES_AT_ONCE = 8
"""Deliveries that begin at once. With more sinks, the one that was served longest ago is next."""
PLACE_SECONDS = 60.0
"""How long a delivery keeps one of these places. A longer one goes on beside them, one for each sink.

So sinks that hang, however many they are, hold up the others no longer than this.
"""
SLOW_SECONDS = 600.0
"""How long a delivery may take before there is an alert."""

_ALWAYS = WorkPermit(is_given=True)
DeliverOnce = Callable[[str, bool, "RunToken | None"], "StepOutcome"]
"""Delivers to a sink, with the repetitions of a run or without, under the token of a run of run control."""


def declared_sinks(settings: Settings) -> frozenset[str]:
    """Return the tables of deliveries of the sinks that are declared now."""
    return frozenset(stage.name for stage in settings.catalog().stages if stage.delivers)


class Deliveries:
    """Deliver what is new to each sink. A sink that is down or slow holds up no other one.

    A failed delivery, after the repetitions that the error policy allows, opens the sink's circuit. It stays
    open for a backoff; then one delivery is tried. There is one alert when it opens and one when it closes,
    also over restarts of the worker, which tries at once. A delivery that takes long leaves its place to the
    other sinks; if it does not end, there is one alert until it is back, also over restarts.

    Args:
        settings: The platform file.
        deliver: Runs the step of a sink.
        is_leaving: Whether this process is about to end.
        working_on: Says, for a block, whether the pipeline of a sink may be worked on.
        lost: Takes an error that the process cannot go on with.
    """

    def __init__(
        self,
        settings: Settings,
        deliver: DeliverOnce,
        *,
        is_leaving: Callable[[], bool],
        lost: Callable[[Exception], object],
        working_on: Callable[[str], AbstractContextManager[WorkPermit]] = lambda table: nullcontext(_ALWAYS),
    ) -> None:
        self._settings, self._step, self._is_leaving, self._lose = settings, deliver, is_leaving, lost
        self._working_on = working_on
        self._lock = threading.Lock()
        self._circuits = read_circuits(settings.home)
        self._due_at_once = set(self._circuits)  # an operator may have restarted it because the sink is back
        self._began: dict[str, float] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._slow = set(read_slow_sinks(settings.home))

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """Threads of the deliveries that are under way."""
        with self._lock:
            return tuple(self._threads.values())

    def look(self) -> None:
        """Start a delivery to each sink that lacks something, and whose circuit allows it."""
        self._look_at_slow()
        try:
            placement = self._settings.placement()
            behind = once_led(placement, lambda: undelivered(placement.reader()))
        except (EtlAssetsError, OSError) as error:
            logger.warning("what sinks lack cannot be told now: %s", error)
            return
        with self._lock:
            caught_up = (self._circuits.keys() | self._slow) - set(behind) - self._threads.keys()
        for table in caught_up:  # a run has delivered, or the sink is no longer declared
            self._succeeded(table)
        for table in self._due(self._allowed(behind)):
            if self._is_leaving():
                return
            thread = threading.Thread(target=self._deliver, args=(table,), name=table, daemon=True)
            with self._lock:
                self._threads[table] = thread
                self._began[table] = time.monotonic()
            thread.start()

    def _allowed(self, tables: Collection[str]) -> list[str]:
        """Return those of some sinks whose pipelines may be worked on now."""
        allowed = []
        for table in tables:
            with self._working_on(table) as may_work:
                allowed += [table] if may_work else []
        return allowed

    def _due(self, behind: Collection[str]) -> list[str]:
        """Return the sinks to deliver to now, the one that was served longest ago first."""
        now, moment = time.time(), time.monotonic()
        with self._lock:
            taken = sum(moment - self._began[table] < PLACE_SECONDS for table in self._threads)
            due = [
                table
                for table in sorted(behind, key=lambda table: self._began.get(table, 0.0))
                if table not in self._threads
                and (
                    table in self._due_at_once
                    or (circuit := self._circuits.get(table)) is None
                    or circuit.state(now) is CircuitState.HALF_OPEN
                )
            ]
            return due[: max(0, MAX_DELIVERIES_AT_ONCE - taken)]

    def _look_at_slow(self) -> None:
        """Write an alert for each delivery that takes too long, one until the sink is back."""
        moment = time.monotonic()
        with self._lock:
            slow = {table for table in self._threads if moment - self._began[table] >= SLOW_SECONDS}
            new, self._slow = slow - self._slow, self._slow | slow
            if new:
                self._keep()
        for table in sorted(new):
            text = (
                f"the delivery to {table} has been under way for {SLOW_SECONDS / 60:.0f} minutes; the other"
                " sinks are delivered to beside it\n  fix: look at the target, which may hang. A first"
                " delivery of many rows may take so long; `etl-assets doctor` says how far the sink is behind"
            )
            logger.warning("%s", text.partition("\n")[0])
            self._alert(AlertKind.SINK_SLOW, table, text)

    def try_at_once(self, tables: Collection[str]) -> None:
        """Try some sinks at the next look, whatever their circuits say."""
        with self._lock:
            self._due_at_once |= set(tables) & self._circuits.keys()

    def _deliver(self, table: str) -> None:
        try:
            with self._working_on(table) as permit:
                if not permit:
                    return
                with self._lock:
                    is_closed = table not in self._circuits
                    self._due_at_once.discard(table)
                done = self._step(table, is_closed, permit.token)
                failed = done.failed
            if self._is_leaving() or done.was_taken_over or done.waits:
                return
            if failed and table in declared_sinks(self._settings):
                self._open(table, next(iter(failed.values())))
            else:
                self._succeeded(table)
        except Exception as error:  # noqa: BLE001 - raised in the main thread, which ends the process
            if not self._is_leaving():
                logger.exception("the deliveries of %s cannot go on", table)
                self._lose(error)
        finally:
            with self._lock:
                del self._threads[table]

    def _open(self, table: str, error: Exception) -> None:
        text, now = told(error), time.time()
        with self._lock:
            before = self._circuits.get(table)
            failures = 1 if before is None else before.failures + 1
            circuit = after_failure(
                before, text[:2_000], pause_seconds=backoff_seconds(error, failures), now=now
            )
            self._circuits[table] = circuit
            self._keep()
        logger.warning("%s: %s", table, circuit.sentence(now))
        if before is None:
            self._alert(AlertKind.SINK_DOWN, table, text)

    def _succeeded(self, table: str) -> None:
        """Close the circuit of a sink that has everything, or forget one that is no longer declared."""
        with self._lock:
            circuit = self._circuits.pop(table, None)
            was_slow = table in self._slow
            self._slow.discard(table)
            self._due_at_once.discard(table)
            if circuit is None and not was_slow:
                return
            self._keep()
        before = "its delivery took long" if circuit is None else f"it was: {circuit.first_line}"
        is_there = table in declared_sinks(self._settings)
        now = "is delivered again" if is_there else "is no longer declared, and is not delivered to"
        logger.warning("%s %s", table, now)
        self._alert(AlertKind.SINK_BACK, table, f"{table} {now}; {before}\n  fix: nothing")

    def _keep(self) -> None:
        with suppress(OSError):  # a full disk, for instance: other processes then see an older state
            write_circuits(self._settings.home, self._circuits)
            write_slow_sinks(self._settings.home, self._slow)

    def _alert(self, kind: AlertKind, table: str, error: str) -> None:
        with suppress(OSError):  # the disk may be what failed
            write_alert(self._settings.home, kind, {"sink": table, "error": error[:2_000]})
