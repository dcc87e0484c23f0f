"""The error policy: one table from kind of error to decision.

Dagster retries every failure except a `Failure` with retries disallowed. So the Dagster layer converts each
error to a `Failure` by this table, and no other code decides about retries.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from enum import StrEnum

from etl_assets import errors


class Decision(StrEnum):
    """Decision about an error.

    RETRY: the same step may succeed later (another writer, a lost connection): retry with backoff and jitter.
    SPLIT: the data of some partition is at fault: try the partitions separately, and let the good ones
        through.
    STOP: the step will fail again until an operator acts.
    """

    RETRY = "retry"
    SPLIT = "split"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRule:
    """A set of errors, the decision about them, and the reason.

    Attributes:
        names: Class names of the error or of a base class.
        exact: Match the error's own class only, because its subclasses mean something else.
        conditions: If given, match only these error conditions of Spark, or conditions below them.
    """

    names: tuple[str, ...]
    decision: Decision
    why: str
    exact: bool = False
    conditions: tuple[str, ...] = ()

    def covers(self, error: BaseException) -> bool:
        """Return whether the rule applies to an error."""
        kinds = type(error).__mro__[: 1 if self.exact else None]
        if not any(kind.__name__ in self.names for kind in kinds):
            return False
        return not self.conditions or str(_ask(error, "getCondition")).partition(".")[0] in self.conditions


_SPARK_WENT_AWAY = (
    ErrorRule(names=("Py4JNetworkError",), decision=Decision.RETRY, why="Spark went away"),
    # A Connect server's errors about data and queries are subclasses.
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
        why="the Spark Connect server was restarted, or has ended the session",
    ),
)
# By name, because classes of pyspark, Delta and py4j are imported only with Spark. The first match wins.
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
    ErrorRule(names=("ConnectionBusy",), decision=Decision.RETRY, why="other steps use the connection"),
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
        names=("SourceUnavailable", "SinkUnavailable"),
        decision=Decision.RETRY,
        why="the server may come back; the position stays until then",
    ),
    ErrorRule(
        names=("ControlStoreUnavailable",),
        decision=Decision.RETRY,
        why="the database with the run control may come back",
    ),
    ErrorRule(
        names=("SinkFenced",),
        decision=Decision.RETRY,
        why="another writer delivered; the step goes on from the position it finds",
    ),
    ErrorRule(
        names=("Fenced", "StaleGeneration"),
        decision=Decision.RETRY,
        why="the table moved; the step finds out where to, and plans again",
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
    ErrorRule(
        names=("EtlAssetsError",), decision=Decision.STOP, why="an operator must act; the error says how"
    ),
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
    """Return the decision about an error. An unknown error stops the run: retries would hide it."""
    if disk_is_full(error):
        return Decision.STOP
    for rule in RULES:
        if rule.covers(error):
            return rule.decision
    return Decision.STOP


def spark_went_away(error: BaseException) -> bool:
    """Return whether the connection to Spark or the session there is lost and another session is needed."""
    return any(rule.covers(error) for rule in _SPARK_WENT_AWAY)


def advice(error: BaseException) -> str:
    """Return what the operator should do, in one sentence."""
    if disk_is_full(error):
        return "free space on the disk of the tables; nothing acknowledged was lost, run again afterwards"
    if isinstance(error, errors.EtlAssetsError):
        return error.fix
    return {
        Decision.RETRY: "nothing, unless it goes on: the step is repeated",
        Decision.SPLIT: "look at the partitions named; the others were committed",
        Decision.STOP: "read the error below, fix its cause, and run the partition again",
    }[decide(error)]


def told(error: BaseException) -> str:
    """Format an error for people.

    The text has the error's name, which the runbook lists, what happened, and after `fix:` what to do.
    """
    message = error.message if isinstance(error, errors.EtlAssetsError) else _said(error)
    return f"{type(error).__name__}: {message.strip()}\n  fix: {advice(error)}"


def _said(error: BaseException) -> str:
    """Return an error's text without Java stack traces.

    The traces have hundreds of lines and stay in the run's log. For a full disk, only the line about it is
    returned.
    """
    lines = [line.rstrip() for line in str(error).splitlines() if not _FRAME.match(line)]
    full = [line for line in lines if any(text in line for text in _DISK_FULL)] if disk_is_full(error) else []
    return "\n".join(line.removeprefix("Caused by: ") for line in full[:1]) or "\n".join(lines)


def disk_is_full(error: BaseException) -> bool:
    """Return whether a full disk caused the error, as reported by Python or by Spark."""
    if isinstance(error, OSError) and error.errno in _DISK_FULL_ERRNOS:
        return True
    return any(text in spark_text(error) for text in _DISK_FULL)


def spark_text(error: BaseException) -> str:
    """Return the full text of a Spark error, with its causes."""
    # A server's message has only the last error; its causes are in the stack trace.
    return f"{error}\n{_ask(error, 'getStackTrace')}"


def _ask(error: BaseException, question: str) -> str | None:
    """Call an error's method if it has one, and return the result; None if it has none."""
    answer = getattr(error, question, None)
    return None if answer is None else answer()
