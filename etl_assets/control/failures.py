"""What follows when an attempt of a run fails: another attempt, or FAILED with what helps. Pure decisions.

Belongs here: number of attempts, backoff, and the retry policy of a failed run. Does not belong here: which
error may pass (`error_policy.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from etl_assets.control.states import RetryPolicy
from etl_assets.error_policy import Decision, advice, decide, told

MAX_ATTEMPTS = 3
BACKOFF_SECONDS = 1.0
"""Before the second attempt, at most; doubles with each further one."""
TIMED_RETRY_SECONDS = 300.0
"""After what may pass by itself has failed all attempts: until the run goes on by itself."""
LONGEST_WAIT_SECONDS = TIMED_RETRY_SECONDS
"""No wait is longer. One that seems to be shows that the clock was set back, and is over."""
_MAX_TEXT = 2_000
_ABSOLUTE_PATH = re.compile(r"(?<![\w:/.…])/(?:[^\s/'\"`,;:()]+/)+[^\s/'\"`,;:()]+")
"""Not a URL's, and not a relative path's."""
_NEEDS_A_CHANGE = frozenset(
    {
        "CommitOverwritten",
        "ContractError",
        "FeatureUnsupported",
        "SchemaMismatch",
        "SinkRefused",
        "SourceLost",
        "SourceRefused",
    }
)
"""Errors that come again until what they name is changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """Why an attempt ended, and what follows.

    Attributes:
        error: What happened, without stack traces and values of rows.
        solution: What to do.
        policy: What helps a run that failed for good.
        wait_seconds: Until the next attempt, or the timed retry; None if nothing follows by itself.
        repeats: Whether another attempt follows.
    """

    error: str
    solution: str
    policy: RetryPolicy
    wait_seconds: float | None = None
    repeats: bool = False


def without_machine_paths(text: str, home: Path | None) -> str:
    """Return a text in which no absolute path of this machine stands.

    What is in the home folder is named relative to it, anything else by the end of its path. Clients
    that read runs over REST learn nothing about the machine. The worker's log has whole paths.
    """

    def short(found: re.Match[str]) -> str:
        path = PurePosixPath(found[0])
        if home is not None and path.is_relative_to(home):
            return path.relative_to(home).as_posix()
        return f"…/{path.name}"

    return _ABSOLUTE_PATH.sub(short, text)


def failure_of(error: Exception, *, attempt: int, jitter: float, home: Path | None = None) -> RunFailure:
    """Return what follows from an error.

    Args:
        error: What ended the attempt.
        home: The home folder, see `without_machine_paths`.
        attempt: Number of the attempt, from 1.
        jitter: Random number from 0 to 1.
    """
    text = without_machine_paths(told(error).partition("\n  fix: ")[0], home)[:_MAX_TEXT]
    solution = without_machine_paths(advice(error), home)[:_MAX_TEXT]
    if decide(error) is not Decision.RETRY:
        needs_change = any(kind.__name__ in _NEEDS_A_CHANGE for kind in type(error).__mro__)
        policy = RetryPolicy.NONE if needs_change else RetryPolicy.MANUAL
        return RunFailure(error=text, solution=solution, policy=policy)
    repeats = attempt < MAX_ATTEMPTS
    longest = BACKOFF_SECONDS * 2.0 ** (attempt - 1)
    return RunFailure(
        error=text,
        solution=solution,
        policy=RetryPolicy.TIMED,
        wait_seconds=longest * (0.5 + jitter / 2) if repeats else TIMED_RETRY_SECONDS,
        repeats=repeats,
    )


def lost_runner(runner: str, silent_seconds: float) -> RunFailure:
    """Return the failure of an attempt whose runner is gone."""
    return RunFailure(
        error=f"the runner {runner} sent no heartbeat for {silent_seconds:.0f} s: it was killed or stopped",
        solution="nothing, unless it goes on: the run goes on from its last commit. If it does, look for the"
        " kernel's out-of-memory killer and the log of the worker, then `retry`",
        policy=RetryPolicy.MANUAL,
    )
