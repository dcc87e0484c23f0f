"""The full contract of a table as a check: the pandera model over the rows of the newest commit."""

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from etl_assets.contracts.columns import TableContract
from etl_assets.contracts.pandera_models import violations
from etl_assets.resources.spark import SparkResource
from etl_assets.settings import Settings
from etl_assets.steps.step import platform_table

VERSION = "table_version"


def contract_check(contract: TableContract, settings: Settings) -> dg.AssetChecksDefinition:
    """Build the check. It costs Spark jobs, so the landing sensor's runs leave it out; runs by hand have it."""

    @dg.asset_check(
        asset=contract.name,
        name="contract",
        description=f"The rows that the newest commit wrote keep every rule of the contract of {contract.name}.",
    )
    def check(context: dg.AssetCheckExecutionContext, spark: SparkResource) -> dg.AssetCheckResult:
        table = platform_table(contract.name, settings.placement().reader())
        version = table.version()
        if version < 0:
            return dg.AssetCheckResult(passed=True, metadata={"rows": "the table does not exist yet"})
        if _passed_before(
            context.instance, dg.AssetCheckKey(dg.AssetKey(contract.name), "contract"), version
        ):
            return dg.AssetCheckResult(passed=True, metadata={"violations": "none", VERSION: version})
        rows = table.read(spark.spark_session, version)
        if "batch_id" in contract.names:
            rows = rows.where(f"batch_id = {version}")
        broken = violations(contract, rows)
        text = "\n".join(f"- {item}" for item in broken[:50]) or "none"
        return dg.AssetCheckResult(
            passed=not broken,
            severity=dg.AssetCheckSeverity.ERROR,
            metadata={"violations": dg.MetadataValue.md(text), VERSION: version},
        )

    return check


def _passed_before(instance: dg.DagsterInstance, key: dg.AssetCheckKey, version: int) -> bool:
    """Whether the last evaluation was of this version: a run that changed nothing then starts no Spark for it."""
    # The newest record is the evaluation that is being made.
    for record in instance.event_log_storage.get_asset_check_execution_history(key, limit=5):
        if record.status is AssetCheckExecutionRecordStatus.FAILED:
            return False
        if record.status is AssetCheckExecutionRecordStatus.SUCCEEDED and record.evaluation is not None:
            checked = record.evaluation.metadata.get(VERSION)
            return checked is not None and checked.value == version
    return False
