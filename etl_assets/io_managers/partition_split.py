"""Many partitions in one run: committed at once, and only where that fails in halves, so that one bad day is alone.

One merge over many days costs no more than over one; a commit a day is paid for only around the days that fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from etl_assets.error_policy import Decision, decide
from etl_assets.steps.step import StepReport, logger


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsResult:
    """What became of a run's partitions: the commits' report (None if there was none) and the failures by partition."""

    report: StepReport | None
    failed: dict[str, Exception] = field(default_factory=dict)


def run_partitions(run: Callable[[Sequence[str]], StepReport], keys: Sequence[str]) -> PartitionsResult:
    """Run a step for all partitions at once, and split them where the data of some makes it fail.

    Raises:
        Exception: whatever the step raises that is not about the data of a partition.
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
    """The two parts that partitions are tried in. Which they are stays as it is: appends are known by it (`append_ids.py`)."""
    middle = len(keys) // 2
    return keys[:middle], keys[middle:]
