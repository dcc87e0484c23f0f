"""Checks of run control: whether its store answers, and which pipelines it keeps from being followed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from etl_assets.control.known_states import look_at_states, was_controlled
from etl_assets.control.states import ControlState, fix_of
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
    has_worker = running_worker(settings.home) is not None or settings.control.connection is not None
    for name, state in sorted(known.by_pipeline.items()):
        if state.has_runner or state is ControlState.RUN_REQUESTED:
            if not has_worker:
                yield warn(
                    CONTROL,
                    f"{name} is {state}, and no worker is there to carry the run",
                    "`etl-assets worker`",
                )
        elif not state.is_followed:
            yield warn(CONTROL, f"{name} is {state}: nothing works on it", fix_of(name, state))
    if known.problem is None:
        yield ok(CONTROL, f"the store answers; {len(known.by_pipeline):,} pipelines are not IDLE")
