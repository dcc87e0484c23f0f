"""States of a pipeline's run control, and the actions that lead from one to another.

Belongs here: the closed sets, and the meaning of each member. Does not belong here: which action leads where
(`transitions.py`).
"""

from __future__ import annotations

from enum import StrEnum


class Party(StrEnum):
    """Who performs an action."""

    CLIENT = "client"
    """A person or program, over REST, the command line or `RunControls`."""
    RUNNER = "runner"
    """The process that holds the lease of the pipeline's run."""
    RECOVERY = "recovery"
    """Any runner that finds the lease of another one expired, or the time of a retry reached."""


class ControlState(StrEnum):
    """State of a pipeline's run control, with who sets it and whether it survives its process.

    Every state is a row of the store, and so is durable. What is not durable about RUNNING is the runner: its
    lease says whether it lives.
    """

    set_by: tuple[Party, ...]
    is_durable: bool
    meaning: str

    def __new__(cls, value: str, set_by: tuple[Party, ...], is_durable: bool, meaning: str) -> ControlState:
        member = str.__new__(cls, value)
        member._value_ = value
        member.set_by, member.is_durable, member.meaning = set_by, is_durable, meaning
        return member

    IDLE = (
        "IDLE",
        (Party.CLIENT, Party.RUNNER),
        True,
        "no run is asked for; worker, sensors and commands follow the pipeline",
    )
    RUN_REQUESTED = (
        "RUN_REQUESTED",
        (Party.CLIENT, Party.RUNNER, Party.RECOVERY),
        True,
        "a run is asked for, or waits for its next attempt; a runner claims it",
    )
    RUNNING = (
        "RUNNING",
        (Party.RUNNER, Party.CLIENT),
        True,
        "a runner holds the lease and a fencing token; valid as long as the lease is",
    )
    PAUSE_REQUESTED = (
        "PAUSE_REQUESTED",
        (Party.CLIENT,),
        True,
        "the runner completes and commits its batch, then stops",
    )
    PAUSED = (
        "PAUSED",
        (Party.CLIENT, Party.RUNNER, Party.RECOVERY),
        True,
        "nothing reads the source or works on the tables of the pipeline; an open run waits",
    )
    CANCEL_REQUESTED = (
        "CANCEL_REQUESTED",
        (Party.CLIENT,),
        True,
        "the runner completes and commits its batch, then gives the run up",
    )
    CANCELED = (
        "CANCELED",
        (Party.CLIENT, Party.RUNNER, Party.RECOVERY),
        True,
        "the run is given up; nothing works on the pipeline until `run` or `resume`",
    )
    FAILED = (
        "FAILED",
        (Party.RUNNER, Party.RECOVERY),
        True,
        "the run failed for good, with reason, solution and retry policy; `retry` or `run` leaves it",
    )

    @property
    def has_runner(self) -> bool:
        """Whether a runner holds a lease, alive or not."""
        return self in (self.RUNNING, self.PAUSE_REQUESTED, self.CANCEL_REQUESTED)

    @property
    def is_followed(self) -> bool:
        """Whether worker, sensors and commands follow the pipeline beside a run."""
        return self in (self.IDLE, self.RUN_REQUESTED)


class Action(StrEnum):
    """What changes a state, with the one who may perform it."""

    party: Party
    meaning: str

    def __new__(cls, value: str, party: Party, meaning: str) -> Action:
        member = str.__new__(cls, value)
        member._value_ = value
        member.party, member.meaning = party, meaning
        return member

    RUN = ("run", Party.CLIENT, "asks for a run")
    PAUSE = ("pause", Party.CLIENT, "stops all work on the pipeline until `resume`")
    RESUME = ("resume", Party.CLIENT, "ends a pause or a cancellation")
    CANCEL = ("cancel", Party.CLIENT, "gives up the open run and a remembered request")
    RETRY = ("retry", Party.CLIENT, "lets a failed run go on from its last commit, or ends its wait")
    CLAIM = ("claim", Party.RUNNER, "takes the lease and the next fencing token")
    STOP = (
        "stop",
        Party.RUNNER,
        "stops between two batches, because a client asked for it; the attempt does not count",
    )
    FINISH = ("finish", Party.RUNNER, "has carried everything that the source had at the beginning")
    REPEAT = ("repeat", Party.RUNNER, "an attempt failed, and another one follows after a backoff")
    FAIL = ("fail", Party.RUNNER, "the last attempt failed, or one that repeating cannot help")
    RELEASE = ("release", Party.RUNNER, "leaves, and gives the run back; the attempt does not count")
    LOSE = ("lose", Party.RECOVERY, "finds the runner's lease expired; the attempt counts")
    WAKE = ("wake", Party.RECOVERY, "finds the time of a timed retry reached")


class RunStatus(StrEnum):
    """What has become of one run."""

    REQUESTED = "requested"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    CANCELED = "canceled"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether the run has ended. A failed one may go on by `retry`."""
        return self in (self.SUCCEEDED, self.CANCELED, self.FAILED)


class RetryPolicy(StrEnum):
    """What helps a failed run.

    NONE: nothing but a change of what the error names; repeating the run as it is fails again.
    MANUAL: `retry`, once an operator has removed the cause.
    TIMED: it goes on by itself at a time that the run names; `retry` does so at once.
    """

    NONE = "none"
    MANUAL = "manual"
    TIMED = "timed"


def fix_of(pipeline: str, state: ControlState) -> str:
    """Return what lets a pipeline be followed again that is not, in a state."""
    command = "etl-assets pipelines"
    match state:
        case ControlState.PAUSED | ControlState.CANCELED:
            return f"`{command} resume {pipeline}`"
        case ControlState.FAILED:
            return f"`{command} runs {pipeline}` says why; then `{command} retry {pipeline}`"
        case _:
            return f"nothing while a worker carries its run (`{command} runs {pipeline}`)"
