"""Reports of a commit to Dagster: materializations with metrics, a log line, and the failures by partition.

Does not belong here: the metrics themselves (`metadata.py`), and the classification of errors
(`error_policy.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from etl_assets.errors import DaysFailed, EtlAssetsError
from etl_assets.metadata import partitions_metadata, run_metadata
from etl_assets.resources.failures import as_failure
from etl_assets.steps.step import INSERTED, UPDATED, StepReport, logger

if TYPE_CHECKING:
    from etl_assets.delta.table import Table
    from etl_assets.io_managers.partition_split import PartitionsResult
    from etl_assets.settings import Settings


def report_partitions(
    context: dg.OutputContext,
    table: Table,
    report: StepReport,
    stored: Sequence[str],
    rows: Mapping[str, int] | None,
    settings: Settings | None,
) -> None:
    """Report every stored partition with the run's metrics."""
    of_run = run_metadata(table, report, of=max(1, len(stored)), settings=settings)
    if not stored:
        context.add_output_metadata(of_run)
        return
    for key, metadata in partitions_metadata(table, report, stored, rows).items():
        context.step_context.add_asset_metadata(metadata, partition_key=key)
    context.step_context.add_asset_metadata(of_run)


def fail_with_the_others(
    context: dg.OutputContext,
    table: Table,
    result: PartitionsResult,
    stored: Sequence[str],
    rows: Mapping[str, int] | None,
) -> None:
    """Report the stored partitions, then fail with an error that names the others."""
    if result.report is not None:
        of_run = run_metadata(table, result.report, of=len(stored))
        for key, metadata in partitions_metadata(table, result.report, stored, rows).items():
            context.log_event(
                dg.AssetMaterialization(context.asset_key, partition=key, metadata={**of_run, **metadata})
            )
    failed = {key: _first_line(error) for key, error in result.failed.items()}
    raise as_failure(
        DaysFailed(
            f"{len(failed)} of {len(failed) + len(stored)} partitions of"
            f" {context.asset_key.to_user_string()} failed: "
            + "; ".join(f"{key}: {text}" for key, text in failed.items()),
            fix=_fixes(result.failed),
            days=failed,
        )
    ) from next(iter(result.failed.values()))


def log_result(context: dg.OutputContext, result: PartitionsResult, partitions: int, seconds: float) -> None:
    """Log the number of rows a run stored."""
    figures = Counter[str]() if result.report is None else result.report.total()
    logger.info(
        "%s: %s%s inserted, %s updated in %.1f s",
        context.asset_key.to_user_string(),
        f"{partitions:,} partitions, " if partitions > 1 else "",
        f"{figures[INSERTED]:,}",
        f"{figures[UPDATED]:,}",
        seconds,
    )


def _first_line(error: Exception) -> str:
    text = error.message if isinstance(error, EtlAssetsError) else str(error)
    return f"{type(error).__name__}: {text.strip().splitlines()[0] if text.strip() else ''}"[:500]


def _fixes(failed: Mapping[str, Exception]) -> str:
    fixes = {error.fix for error in failed.values() if isinstance(error, EtlAssetsError)}
    return (
        " / ".join(sorted(fixes))
        or "fix the data of these partitions and run them again; the others are stored"
    )
