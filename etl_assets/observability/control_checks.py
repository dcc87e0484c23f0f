"""Checks of run control: whether its store answers, and which pipelines it keeps from being followed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from etl_assets.control.known_states import look_at_states, was_controlled
from etl_assets.control.states import ControlState, fix_of
from etl_assets.errors import ControlStoreUnavailable, ControlStoreUnusable
from etl_assets.observability.findings import Finding, ok, warn
from etl_assets.worker.lease import running_worker

if TYPE_CHECKING:
    from etl_assets.settings import Settings

CONTROL = "run control"


def check_control(settings: Settings) -> Iterator[Finding]:
    """Check that the control store answers, and name the pipelines that are paused, canceled or failed.

    A run without a worker is named too: nothing else carries it.
    """
    if not was_controlled(settings):
        yield ok(CONTROL, "not used: every pipeline is followed")
        return
    known = look_at_states(settings)
    if known.problem is not None:
        when = "none are known, all pipelines are followed"
        if known.as_of is not None:
            when = f"those of {known.as_of:%Y-%m-%d %H:%M:%S} UTC"
        yield warn(
            CONTROL,
            f"{known.problem}; the states that are used: {when}",
            "bring the store back: until then no run begins, and no pause or cancellation is obeyed",
        )
    silent = _silent_leases(settings) if known.problem is None else {}
    yield from _not_taken_over(silent)
    has_worker = running_worker(settings.home) is not None or settings.control.connection is not None
    for name, state in sorted(known.by_pipeline.items()):
        if state.has_runner or state is ControlState.RUN_REQUESTED:
            if not has_worker and name not in silent:
                yield warn(
                    CONTROL,
                    f"{name} is {state}, and no worker is there to carry the run",
                    "`etl-assets worker`",
                )
        elif not state.is_followed:
            yield warn(CONTROL, f"{name} is {state}: nothing works on it", fix_of(name, state))
    if known.problem is None:
        yield ok(CONTROL, f"the store answers; {len(known.by_pipeline):,} pipelines are not IDLE")


def _not_taken_over(silent: Mapping[str, float]) -> Iterator[Finding]:
    for name, seconds in sorted(silent.items()):
        yield warn(
            CONTROL,
            f"the lease of the run of {name} has expired: its runner sent no heartbeat for {seconds:.0f} s,"
            " and no worker has taken the run over",
            "start `etl-assets worker` where this control store is used. A worker takes the run over once it"
            " has watched the lease for `control.lease_seconds`; if one runs, look at its log",
        )


def _silent_leases(settings: Settings) -> dict[str, float]:
    """Return pipelines whose lease has expired, by the store's clock, with seconds since the last heartbeat.

    For people: runners do not decide by it.
    """
    from etl_assets.control.rows import read_leases
    from etl_assets.control.store import open_store

    try:
        store = open_store(settings)
        try:
            with store.reading() as connection:
                now = store.now(connection)
                ages = {each: (now - each.at).total_seconds() for each in read_leases(connection)}
        finally:
            store.close()
    except (ControlStoreUnavailable, ControlStoreUnusable):
        return {}  # it has just answered, and the next look says so
    return {each.pipeline: age for each, age in ages.items() if age > each.lease_seconds}
