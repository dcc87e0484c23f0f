"""Asset check of a table's full contract, over the rows of the newest commit.

Up to a million rows are checked in this process within a second or two, so runs of sensors include the check.
More rows go through the pandera model, which takes Spark some seconds per table.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import dagster as dg

from etl_assets.contracts.arrow_rules import violations_in_process
from etl_assets.contracts.columns import TableContract
from etl_assets.contracts.pandera_models import Violation, violations
from etl_assets.contracts.spark_types import log_differences
from etl_assets.delta.read.rows import rows_of_batch_in_process
from etl_assets.delta.table import Table
from etl_assets.resources.spark import SparkResource
from etl_assets.settings import Settings
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = "table_version"


def contract_check(contract: TableContract, settings: Settings) -> dg.AssetChecksDefinition:
    """Build the check of a table's contract."""

    @dg.asset_check(
        asset=contract.name,
        name="contract",
        description="The rows that the newest commit wrote keep every rule of the contract of"
        f" {contract.name}.",
    )
    def check(context: dg.AssetCheckExecutionContext, spark: SparkResource) -> dg.AssetCheckResult:
        table = platform_table(contract.name, settings.placement().reader())
        version = table.version()
        if version < 0:
            return dg.AssetCheckResult(passed=True, metadata={"rows": "the table does not exist yet"})
        if _passed_before(
            context.instance, dg.AssetCheckKey(dg.AssetKey(contract.name), "contract"), version
        ):
            return dg.AssetCheckResult(passed=True, metadata={"violations": "none", VERSION: str(version)})
        broken = broken_by(table, contract, version, lambda: spark.spark_session)
        text = "\n".join(f"- {item}" for item in broken[:50]) or "none"
        return dg.AssetCheckResult(
            passed=not broken,
            severity=dg.AssetCheckSeverity.ERROR,
            metadata={"violations": dg.MetadataValue.md(text), VERSION: str(version)},
        )

    return check


def broken_by(
    table: Table, contract: TableContract, version: int, session: "Callable[[], SparkSession]"
) -> tuple[Violation, ...]:
    """Return how the rows that a commit wrote violate a contract. Spark is used only for too many rows."""
    snapshot = table.snapshot(version)
    differences = () if snapshot is None else log_differences(contract, snapshot.fields())
    if differences:
        return tuple(
            Violation(table=contract.name, column=each.column, check=str(each), count=None)
            for each in differences
        )
    rows = rows_of_batch_in_process(table, version)
    if rows is not None:
        return violations_in_process(contract, rows)
    frame = table.read(session(), version)
    if contract.batch_column is not None:
        frame = frame.where(f"{contract.batch_column} = {version}")
    return violations(contract, frame)


def _passed_before(instance: dg.DagsterInstance, key: dg.AssetCheckKey, version: int) -> bool:
    """Return whether the last evaluation passed for this version. An unchanged table then needs no Spark."""
    for record in instance.event_log_storage.get_asset_check_execution_history(key, limit=5):
        evaluation = record.evaluation
        if not isinstance(evaluation, dg.AssetCheckEvaluation):
            continue  # planned only: the newest record is the evaluation under way
        checked = evaluation.metadata.get(VERSION)
        # Earlier releases wrote a number, which Dagster plotted.
        return evaluation.passed and checked is not None and str(checked.value) == str(version)
    return False
