"""What an error means for a run: the one table from kind of error to decision.

Dagster repeats every failure that is not a `Failure` with retries disallowed. So the Dagster layer turns each error into a
`Failure` by this table, and nothing else decides about retries.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from enum import StrEnum

from etl_assets import errors


class Decision(StrEnum):
    """What to do about an error.

    RETRY: the same step may succeed later (another writer, a lost connection): repeat with backoff and jitter.
    SPLIT: something about the data of some partition: try the partitions apart, and let the good ones through.
    STOP: it will fail again until somebody acts.
    """

    RETRY = "retry"
    SPLIT = "split"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRule:
    """Errors, what to do about them, and why.

    Attributes:
        names: Class names, of the error or of a base class.
        exact: Of the error only: what is derived from the class is something else.
        conditions: Where given, only with one of these error conditions of Spark's, or one below it.
    """

    names: tuple[str, ...]
    decision: Decision
    why: str
    exact: bool = False
    conditions: tuple[str, ...] = ()

    def covers(self, error: BaseException) -> bool:
        """Whether this is one of them."""
        kinds = type(error).__mro__[: 1 if self.exact else None]
        if not any(kind.__name__ in self.names for kind in kinds):
            return False
        return not self.conditions or str(_ask(error, "getCondition")).partition(".")[0] in self.conditions


_SPARK_WENT_AWAY = (
    ErrorRule(names=("Py4JNetworkError",), decision=Decision.RETRY, why="Spark went away"),
    # All that a Connect server has to say about data and queries is derived from it.
    ErrorRule(
        names=("SparkConnectGrpcException",),
        exact=True,
        decision=Decision.RETRY,
        why="no answer of the Spark Connect server",
    ),
    ErrorRule(
        names=("SparkConnectException",),
        conditions=("INVALID_HANDLE", "NO_ACTIVE_SESSION"),
        decision=Decision.RETRY,
        why="the Spark Connect server has started anew, or has ended the session",
    ),
)
# By name, because the classes of pyspark, Delta and py4j are not imported before Spark is. First match wins.
RULES = (
    ErrorRule(
        names=(
            "ConcurrentAppendException",
            "ConcurrentDeleteDeleteException",
            "ConcurrentDeleteReadException",
            "ConcurrentTransactionException",
            "ConcurrentWriteException",
            "DeltaConcurrentModificationException",
            "MetadataChangedException",
            "ProtocolChangedException",
        ),
        decision=Decision.RETRY,
        why="another commit came in between",
    ),
    ErrorRule(
        names=("CommitConflict", "TableBusy"), decision=Decision.RETRY, why="another run writes the table"
    ),
    ErrorRule(
        names=("EffectInProgress", "EffectTakenOver"),
        decision=Decision.RETRY,
        why="another owner has the effect; it completes, or it is taken over",
    ),
    *_SPARK_WENT_AWAY,
    ErrorRule(
        names=("EngineLost",),
        decision=Decision.RETRY,
        why="the step is repeated in a Spark engine of its own",
    ),
    ErrorRule(
        names=("DomainUnavailable", "StorageFailed"), decision=Decision.RETRY, why="the storage may come back"
    ),
    ErrorRule(
        names=("QuorumUnavailable", "Unanswered"),
        decision=Decision.RETRY,
        why="the domains may come back; nothing is acknowledged until they do",
    ),
    ErrorRule(
        names=("Fenced", "StaleGeneration"),
        decision=Decision.RETRY,
        why="the table moved; the step finds out where to, and plans anew",
    ),
    ErrorRule(
        names=("SourceChanged",),
        decision=Decision.SPLIT,
        why="a file is being written; it is read as it is then",
    ),
    ErrorRule(names=("InputError",), decision=Decision.SPLIT, why="some of the input cannot be read"),
    ErrorRule(names=("NullRefused",), decision=Decision.SPLIT, why="some of the rows lack a value"),
    ErrorRule(
        names=("CommitOverwritten", "FeatureUnsupported"),
        decision=Decision.STOP,
        why="another program changed the table; an operator must decide what becomes of it",
    ),
    ErrorRule(names=("RowsRefused",), decision=Decision.SPLIT, why="some of the rows cannot be stored"),
    ErrorRule(names=("EtlAssetsError",), decision=Decision.STOP, why="somebody must act; the error says how"),
    ErrorRule(
        names=("AnalysisException", "ParseException", "InvalidPlanInput"),
        decision=Decision.STOP,
        why="the query itself is wrong",
    ),
    ErrorRule(
        names=("PySparkException", "Py4JJavaError"), decision=Decision.SPLIT, why="a task failed on its data"
    ),
    ErrorRule(
        names=("ConnectionError", "TimeoutError"), decision=Decision.RETRY, why="a connection was lost"
    ),
)
_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT}
_FRAME = re.compile(r"\s+(at \S+\(.*\)|\.\.\. \d+ more)\s*$")
_DISK_FULL = ("No space left on device", "Disk quota exceeded")


def decide(error: BaseException) -> Decision:
    """What to do about an error. An unknown one stops the run: repeating what is not understood hides it."""
    if disk_is_full(error):
        return Decision.STOP
    for rule in RULES:
        if rule.covers(error):
            return rule.decision
    return Decision.STOP


def spark_went_away(error: BaseException) -> bool:
    """Whether the connection to Spark or the session there is gone, so that only another session may do."""
    return any(rule.covers(error) for rule in _SPARK_WENT_AWAY)


def advice(error: BaseException) -> str:
    """What the operator should do, in one sentence."""
    if disk_is_full(error):
        return "free space on the disk of the tables; nothing acknowledged was lost, run again afterwards"
    if isinstance(error, errors.EtlAssetsError):
        return error.fix
    return {
        Decision.RETRY: "nothing, unless it goes on: the step is repeated",
        Decision.SPLIT: "look at the partitions named; the others were committed",
        Decision.STOP: "read the error below, mend its cause, and run the partition again",
    }[decide(error)]


def told(error: BaseException) -> str:
    """An error for people: its name, which the runbook lists, what happened, and after `fix:` what to do."""
    message = error.message if isinstance(error, errors.EtlAssetsError) else _said(error)
    return f"{type(error).__name__}: {message.strip()}\n  fix: {advice(error)}"


def _said(error: BaseException) -> str:
    """Its text without the stacks of Java, which are hundreds of lines and stay in the run's log; of a full disk that alone."""
    lines = [line.rstrip() for line in str(error).splitlines() if not _FRAME.match(line)]
    full = [line for line in lines if any(text in line for text in _DISK_FULL)] if disk_is_full(error) else []
    return "\n".join(line.removeprefix("Caused by: ") for line in full[:1]) or "\n".join(lines)


def disk_is_full(error: BaseException) -> bool:
    """Whether a full disk is behind the error, in Python or in Spark's words."""
    if isinstance(error, OSError) and error.errno in _DISK_FULL_ERRNOS:
        return True
    return any(text in spark_text(error) for text in _DISK_FULL)


def spark_text(error: BaseException) -> str:
    """All that an error of Spark's says, with what it came from."""
    # A server's message has the last error only; those that it came from are in the stack trace.
    return f"{error}\n{_ask(error, 'getStackTrace')}"


def _ask(error: BaseException, question: str) -> str | None:
    """What an error of Spark's tells when asked; None where it is not asked such things."""
    answer = getattr(error, question, None)
    return None if answer is None else answer()
