"""Many partitions in one run: one commit for all; on failure in halves, until each bad partition is alone.

A merge over many days costs no more than one over a single day. Only around failing days does the run pay for
a commit per day.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from etl_assets.error_policy import Decision, decide
from etl_assets.steps.step import StepReport, logger


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsResult:
    """Result of a run's partitions.

    Attributes:
        report: Report of the commits; None if there was none.
        failed: Errors by partition.
    """

    report: StepReport | None
    failed: dict[str, Exception] = field(default_factory=dict)


def run_partitions(run: Callable[[Sequence[str]], StepReport], keys: Sequence[str]) -> PartitionsResult:
    """Run a step for all partitions at once, and split them where their data makes it fail.

    Raises:
        Exception: any error of the step that is not about the data of a partition.
    """
    try:
        return PartitionsResult(report=run(keys))
    except Exception as error:
        if not keys or decide(error) is not Decision.SPLIT:
            raise
        if len(keys) == 1:
            return PartitionsResult(report=None, failed={keys[0]: error})
        logger.warning(
            "%d partitions failed together and are tried apart: %s", len(keys), type(error).__name__
        )
        middle = len(keys) // 2
        first, second = run_partitions(run, keys[:middle]), run_partitions(run, keys[middle:])
    reports = [result.report for result in (first, second) if result.report is not None]
    return PartitionsResult(
        report=sum(reports[1:], reports[0]) if reports else None, failed={**first.failed, **second.failed}
    )


def halves(keys: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Split partitions into the two parts that are tried.

    The split must never change: the identities of appends depend on it (`append_ids.py`).
    """
    middle = len(keys) // 2
    return keys[:middle], keys[middle:]
