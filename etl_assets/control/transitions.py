"""The one table of transitions: from a state, by an action, to a state. The rest follows from it.

Belongs here: which action is allowed where, and where it leads; the page docs/control-plane.md is made of it.
Does not belong here: what else an action changes (`change.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from etl_assets.control.states import Action, ControlState
from etl_assets.errors import TransitionRefused

IDLE, RUN_REQUESTED, RUNNING = ControlState.IDLE, ControlState.RUN_REQUESTED, ControlState.RUNNING
PAUSE_REQUESTED, PAUSED = ControlState.PAUSE_REQUESTED, ControlState.PAUSED
CANCEL_REQUESTED, CANCELED, FAILED = (
    ControlState.CANCEL_REQUESTED,
    ControlState.CANCELED,
    ControlState.FAILED,
)


class When(StrEnum):
    """Condition of a transition, on what the pipeline's row says beside its state."""

    ALWAYS = ""
    OPEN = "a run is open, or a request is remembered"
    REQUESTED = "a request is remembered"
    LAST_ATTEMPT = "it was the last attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One row of the table.

    Attributes:
        start: State before.
        action: What is done; `action.party` may do it.
        end: State after.
        meaning: What it means for the run and the pipeline.
        when: Condition; of the rows of one start and action the first that holds applies.
    """

    start: ControlState
    action: Action
    end: ControlState
    meaning: str
    when: When = When.ALWAYS


def _row(
    start: ControlState, action: Action, end: ControlState, meaning: str, when: When = When.ALWAYS
) -> Transition:
    return Transition(start=start, action=action, end=end, meaning=meaning, when=when)


TRANSITIONS: tuple[Transition, ...] = (
    # Asking for a run. A request is never lost: where it cannot begin at once, it is remembered.
    _row(IDLE, Action.RUN, RUN_REQUESTED, "a new run waits for a runner"),
    _row(RUN_REQUESTED, Action.RUN, RUN_REQUESTED, "one that has not begun is the run asked for; else the"
         " request is remembered"),
    _row(RUNNING, Action.RUN, RUNNING, "remembered: a new run follows this one, which may have missed the"
         " newest input"),
    _row(PAUSE_REQUESTED, Action.RUN, PAUSE_REQUESTED, "remembered; the pause stands"),
    _row(PAUSED, Action.RUN, PAUSED, "remembered; the pause stands"),
    _row(CANCEL_REQUESTED, Action.RUN, CANCEL_REQUESTED, "remembered: a new run follows the canceled one"),
    _row(CANCELED, Action.RUN, RUN_REQUESTED, "a new run waits for a runner"),
    _row(FAILED, Action.RUN, RUN_REQUESTED, "a new run waits for a runner; the failed one is over"),
    # Pausing. Without a runner it is immediate.
    _row(IDLE, Action.PAUSE, PAUSED, "the pipeline is not followed any more"),
    _row(RUN_REQUESTED, Action.PAUSE, PAUSED, "the run waits for `resume`"),
    _row(RUNNING, Action.PAUSE, PAUSE_REQUESTED, "the runner stops after its batch"),
    _row(PAUSE_REQUESTED, Action.PAUSE, PAUSE_REQUESTED, "nothing changes"),
    _row(PAUSED, Action.PAUSE, PAUSED, "nothing changes"),
    _row(CANCELED, Action.PAUSE, PAUSED, "`run` does not begin before `resume`"),
    _row(FAILED, Action.PAUSE, PAUSED, "the failed run goes on with `resume`, not by itself"),
    _row(PAUSE_REQUESTED, Action.STOP, PAUSED, "the run waits for `resume`"),
    # Resuming.
    _row(PAUSED, Action.RESUME, RUN_REQUESTED, "the open or remembered run goes on", When.OPEN),
    _row(PAUSED, Action.RESUME, IDLE, "the pipeline is followed again"),
    _row(PAUSE_REQUESTED, Action.RESUME, RUNNING, "the pause is withdrawn before the runner stopped"),
    _row(CANCELED, Action.RESUME, IDLE, "the pipeline is followed again"),
    _row(IDLE, Action.RESUME, IDLE, "nothing changes"),
    _row(RUN_REQUESTED, Action.RESUME, RUN_REQUESTED, "nothing changes"),
    _row(RUNNING, Action.RESUME, RUNNING, "nothing changes"),
    # Canceling.
    _row(RUN_REQUESTED, Action.CANCEL, CANCELED, "the run is given up before a runner took it"),
    _row(RUNNING, Action.CANCEL, CANCEL_REQUESTED, "the runner stops after its batch"),
    _row(PAUSE_REQUESTED, Action.CANCEL, CANCEL_REQUESTED, "the runner stops after its batch"),
    _row(PAUSED, Action.CANCEL, CANCELED, "the open run and the remembered request are given up"),
    _row(FAILED, Action.CANCEL, CANCELED, "the failed run does not go on by itself"),
    _row(CANCEL_REQUESTED, Action.CANCEL, CANCEL_REQUESTED, "a request since the last `cancel` is given up"),
    _row(CANCELED, Action.CANCEL, CANCELED, "nothing changes"),
    _row(CANCEL_REQUESTED, Action.STOP, RUN_REQUESTED, "a run was asked for since", When.REQUESTED),
    _row(CANCEL_REQUESTED, Action.STOP, CANCELED, "the run is given up"),
    # Retrying.
    _row(FAILED, Action.RETRY, RUN_REQUESTED, "the run goes on from its last commit, with new attempts"),
    _row(RUN_REQUESTED, Action.RETRY, RUN_REQUESTED, "the backoff ends now"),
    _row(FAILED, Action.WAKE, RUN_REQUESTED, "the time of a timed retry has come"),
    # Carrying a run.
    _row(RUN_REQUESTED, Action.CLAIM, RUNNING, "the attempt counts, the fencing token rises"),
    _row(RUNNING, Action.FINISH, RUN_REQUESTED, "the remembered run begins", When.REQUESTED),
    _row(RUNNING, Action.FINISH, IDLE, "the run succeeded"),
    _row(PAUSE_REQUESTED, Action.FINISH, PAUSED, "the run succeeded; the pause stands"),
    _row(CANCEL_REQUESTED, Action.FINISH, RUN_REQUESTED, "the run succeeded; one was asked for since",
         When.REQUESTED),
    _row(CANCEL_REQUESTED, Action.FINISH, CANCELED, "the run succeeded before it could be canceled"),
    _row(RUNNING, Action.REPEAT, RUN_REQUESTED, "the next attempt begins after the backoff"),
    _row(PAUSE_REQUESTED, Action.REPEAT, PAUSED, "the next attempt begins with `resume`"),
    _row(CANCEL_REQUESTED, Action.REPEAT, RUN_REQUESTED, "a run was asked for since", When.REQUESTED),
    _row(CANCEL_REQUESTED, Action.REPEAT, CANCELED, "the run is given up"),
    _row(RUNNING, Action.FAIL, FAILED, "the run failed; a remembered request waits"),
    _row(PAUSE_REQUESTED, Action.FAIL, PAUSED, "the run failed and goes on with `resume`"),
    _row(CANCEL_REQUESTED, Action.FAIL, RUN_REQUESTED, "a run was asked for since", When.REQUESTED),
    _row(CANCEL_REQUESTED, Action.FAIL, CANCELED, "the run is given up"),
    _row(RUNNING, Action.RELEASE, RUN_REQUESTED, "another runner goes on from the last commit"),
    _row(PAUSE_REQUESTED, Action.RELEASE, PAUSED, "the run waits for `resume`"),
    _row(CANCEL_REQUESTED, Action.RELEASE, RUN_REQUESTED, "a run was asked for since", When.REQUESTED),
    _row(CANCEL_REQUESTED, Action.RELEASE, CANCELED, "the run is given up"),
    # A runner that is gone.
    _row(RUNNING, Action.LOSE, FAILED, "the runners of all attempts were lost", When.LAST_ATTEMPT),
    _row(RUNNING, Action.LOSE, RUN_REQUESTED, "another runner goes on from the last commit"),
    _row(PAUSE_REQUESTED, Action.LOSE, PAUSED, "the run waits for `resume`"),
    _row(CANCEL_REQUESTED, Action.LOSE, RUN_REQUESTED, "a run was asked for since", When.REQUESTED),
    _row(CANCEL_REQUESTED, Action.LOSE, CANCELED, "the run is given up"),
)  # fmt: skip
_REFUSALS = {
    (CANCEL_REQUESTED, Action.PAUSE): "wait until the run is canceled, then pause",
    (CANCEL_REQUESTED, Action.RESUME): "wait until the run is canceled, then resume",
    (FAILED, Action.RESUME): "`retry` lets the failed run go on, `run` begins a new one",
    (IDLE, Action.CANCEL): "there is no run; `pause` stops the pipeline from being followed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlFacts:
    """What conditions ask of a pipeline's row.

    Attributes:
        state: State.
        has_open_run: Whether a run has begun or was asked for and has not ended, or failed last.
        is_requested: Whether a request is remembered.
        is_last_attempt: Whether the attempt under way is the last one.
    """

    state: ControlState
    has_open_run: bool = False
    is_requested: bool = False
    is_last_attempt: bool = False

    def meet(self, when: When) -> bool:
        """Return whether a condition holds."""
        match when:
            case When.ALWAYS:
                return True
            case When.OPEN:
                return self.has_open_run or self.is_requested
            case When.REQUESTED:
                return self.is_requested
            case When.LAST_ATTEMPT:
                return self.is_last_attempt


def transition(pipeline: str, facts: ControlFacts, action: Action) -> Transition:
    """Return the transition of an action.

    Raises:
        TransitionRefused: the state does not allow the action.
    """
    for row in TRANSITIONS:
        if row.start is facts.state and row.action is action and facts.meet(row.when):
            return row
    allowed = allowed_actions(facts.state)
    raise TransitionRefused(
        f"{pipeline} is {facts.state}, which does not allow `{action}`",
        fix=_REFUSALS.get((facts.state, action), f"possible are: {', '.join(allowed)}"),
        pipeline=pipeline,
        state=facts.state.value,
        action=action.value,
        allowed=allowed,
    )


def allowed_actions(state: ControlState) -> tuple[Action, ...]:
    """Return the actions of clients that a state allows, in the order of the enum."""
    found = {row.action for row in TRANSITIONS if row.start is state}
    return tuple(action for action in Action if action in found and action.party == "client")
