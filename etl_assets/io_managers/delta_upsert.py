"""`DeltaUpsertIOManager`: an asset returns a Spark DataFrame and gets idempotent upserts into a Delta table.

The asset says how in its metadata (`UpsertSpec(...).to_metadata()`, or the keys by hand):

```python
@dg.asset(
    partitions_def=daily,
    metadata=UpsertSpec(merge_key=("id",), ordering="updated_at", delta_partition="day").to_metadata(),
    io_manager_key="delta",
)
def customers(spark: SparkResource) -> "DataFrame": ...
```

Running it twice changes nothing, a backfill in one run is one commit, and the commit's figures are on the
materialization. Steps of the platform (`etl_assets.steps`) go the same way.
"""

import datetime as dt
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from etl_assets.contracts import tables as contracts
from etl_assets.contracts.sql_text import identifier
from etl_assets.delta.frame_columns import check_frame
from etl_assets.delta.partition_values import PartitionValues
from etl_assets.delta.session import frame_of
from etl_assets.delta.table import Table
from etl_assets.delta.upsert import METADATA_PREFIX, UpsertSpec
from etl_assets.errors import ContractError, DaysFailed, EtlAssetsError, NotFound
from etl_assets.io_managers.frame_step import FrameStep
from etl_assets.io_managers.partition_keys import values_by_key
from etl_assets.io_managers.partition_split import PartitionsResult, run_partitions
from etl_assets.metadata import partitions_metadata, run_metadata
from etl_assets.mirroring.locator import Role
from etl_assets.mirroring.time_limit import DEFAULT_TIMEOUT_SECONDS
from etl_assets.placement.domains import FailureDomain
from etl_assets.placement.observations import Observations
from etl_assets.placement.site import Site
from etl_assets.resources.cancellation import cancel_on_interrupt
from etl_assets.resources.failures import as_failure
from etl_assets.resources.spark import SparkResource, renew_sessions
from etl_assets.retry_policy import spark_went_away
from etl_assets.steps.step import INSERTED, UPDATED, StepContext, StepReport, domain_watched, logger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class DeltaUpsertIOManager(dg.ConfigurableIOManager):
    """Stores DataFrames in Delta tables by upsert, and loads them.

    Attributes:
        root: Folder of the failure domain; the table of asset `a/b` is `<root>/tables/a.b/<content generation>`.
        domain: The domain's name, for the metadata.
        health: File with what is observed of the domains; empty for none.
        timeout_seconds: How long a domain may take to answer anything.
        sites: `name`, `root` and `role` of all domains, this one among them, if tables are mirrored over several.
        spark: The session to load with.
        lock_wait_seconds: How long to wait for another writer of the same table.

    Guarantees: a row is stored once for each merge key; a commit is durable before the materialization is reported; two
    processes that write one table at once lose nothing; of a run over many partitions, those that fail do not stop the
    others from being stored and reported.
    """

    root: str
    domain: str = "local"
    sites: list[dict[str, str]] = Field(default=[])
    health: str = ""
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    spark: dg.ResourceDependency[SparkResource]
    lock_wait_seconds: float = 60.0

    def table_of(self, key: dg.AssetKey, *, users: bool = False) -> Table:
        """The table of an asset.

        Args:
            key: The asset's.
            users: It is an asset of a user's own, whose table has no contract, whatever its name.

        Raises:
            ContractError: the asset's key is not fit for a folder's name.
        """
        name = ".".join(key.path)
        if not _SAFE_NAME.fullmatch(name):
            raise ContractError(
                f"the asset key {key.to_user_string()!r} cannot name a table",
                fix="use letters, digits, `_`, `-` and `.`",
                asset=key.to_user_string(),
            )
        try:
            contract = None if users else contracts.table(name)
        except NotFound:
            contract = None
        sites = tuple(
            Site(name=site["name"], root=site["root"], role=Role(site["role"])) for site in self.sites
        )
        domain = FailureDomain(
            name=self.domain,
            root=Path(self.root),
            sites=sites,
            observations=Observations(Path(self.health)) if self.health else None,
            timeout_seconds=self.timeout_seconds,
        )
        return Table(name=name, domain=domain, contract=contract)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Commit what an asset returned: a DataFrame or a step.

        Raises:
            dagster.Failure: with retries allowed only if the retry table says so. If only some partitions failed, the
                others are stored and reported before.
        """
        keys = tuple(context.asset_partition_keys) if context.has_asset_partitions else ()
        table = self.table_of(context.asset_key, users=not _is_step(obj))
        started = time.monotonic()
        step: FrameStep | None = None
        try:
            if _is_step(obj):
                result = run_partitions(lambda some: _run_step(obj, table.name, _days(some)), keys)
            else:
                step = self._frame_step(context, obj, table, keys)
                result = run_partitions(step.run, keys)
        except Exception as error:
            if spark_went_away(error):
                renew_sessions()
            raise as_failure(error) from error
        _log(context, result, len(keys), time.monotonic() - started)
        stored = [key for key in keys if key not in result.failed]
        rows = None if step is None else step.stored_rows(stored)
        if result.failed:
            _fail(context, table, result, stored, rows)
        elif result.report is not None:
            _report(context, table, result.report, stored, rows)

    def load_input(self, context: dg.InputContext) -> "DataFrame":
        """The rows of the upstream asset, of the partitions asked for, at the table's version as of now.

        An asset that reads its own earlier partitions gets an empty frame with its spec's `columns` as long as it has no table.

        Raises:
            NotFound: the asset has not been materialized.
            ContractError: the partitions asked for cannot be told apart in the table.
        """
        spec = _spec_of(context)
        table = self.table_of(context.asset_key, users=spec is not None)
        version = table.version()
        if version < 0:
            return self._before_the_first(context, spec, table)
        rows = table.read(self.spark.spark_session, version)
        if not context.has_asset_partitions:
            return rows
        if table.contract is not None:
            column = table.contract.delta_partition[0]
        elif spec is not None and spec.delta_partition is not None:
            column = spec.delta_partition
        else:
            raise ContractError(
                f"the partitions of {context.asset_key.to_user_string()} cannot be told apart in its table",
                fix="name the column of the asset's partition in the spec's `delta_partition`",
                asset=context.asset_key.to_user_string(),
            )
        asset = context.asset_key.to_user_string()
        if column not in rows.columns:
            raise ContractError(
                f"the table of {asset} has no column {column}, which its spec names as `delta_partition`",
                fix=f"name one of its columns: {', '.join(rows.columns)}",
                asset=asset,
                column=column,
            )
        partitions = values_by_key(
            context.asset_partitions_def,
            context.asset_partition_keys,
            column=column,
            type_=rows.schema[column].dataType,
            asset=asset,
        )
        return rows.where(PartitionValues.union(partitions.values()).condition(identifier(column)))

    def _before_the_first(
        self, context: dg.InputContext, spec: UpsertSpec | None, table: Table
    ) -> "DataFrame":
        name = context.asset_key.to_user_string()
        if not _is_own(context):
            raise NotFound(
                f"the table of {name} does not exist", fix="materialize that asset first", table=table.name
            )
        if spec is None or spec.columns is None:
            raise NotFound(
                f"the asset {name} reads its own earlier partitions, and its table does not exist yet",
                fix="declare its columns in the spec, and the first partition is given an empty frame:"
                " UpsertSpec(..., columns='id STRING, day DATE')",
                table=table.name,
            )
        return frame_of(self.spark.spark_session, [], spec.columns)

    def _frame_step(
        self, context: dg.OutputContext, obj: Any, table: Table, keys: tuple[str, ...]
    ) -> FrameStep:
        asset = context.asset_key.to_user_string()
        # Asked of the class: a frame has an attribute for each of its columns too.
        if not hasattr(type(obj), "sparkSession"):
            raise ContractError(
                f"the asset {asset} returned {_type_name(obj)}",
                fix="return a Spark DataFrame (pyspark.sql.DataFrame); of a pandas.DataFrame or an Arrow table"
                " spark.createDataFrame(...) makes one",
                asset=asset,
            )
        spec = UpsertSpec.from_metadata(context.definition_metadata, asset=asset)
        check_frame(spec, obj.schema, table=table.name, is_new=table.version() < 0)
        partitions = (
            values_by_key(
                context.asset_partitions_def,
                keys,
                column=spec.delta_partition,
                type_=obj.schema[spec.delta_partition].dataType,
                asset=asset,
            )
            if keys and spec.delta_partition is not None
            else {}
        )
        cancel_on_interrupt(obj.sparkSession)
        return FrameStep(
            rows=obj,
            table=table,
            spec=spec,
            all_keys=keys,
            partitions=partitions,
            lock_wait_seconds=self.lock_wait_seconds,
        )


def _is_step(obj: Any) -> bool:
    """Whether an asset returned a step. Asked of the class: a frame with a column `run` has that attribute too."""
    return hasattr(type(obj), "run")


def _days(keys: Sequence[str]) -> list[dt.date]:
    return [dt.date.fromisoformat(key) for key in keys]


def _type_name(obj: Any) -> str:
    kind = type(obj)
    package = kind.__module__.partition(".")[0]
    return kind.__qualname__ if package == "builtins" else f"{package}.{kind.__qualname__}"


def _spec_of(context: dg.InputContext) -> UpsertSpec | None:
    """The spec of the asset that is loaded; None for one without, as those of the platform are."""
    metadata: Mapping[str, Any] = (
        context.upstream_output.definition_metadata if context.upstream_output else {}
    )
    if not any(name.startswith(METADATA_PREFIX) for name in metadata):
        return None
    return UpsertSpec.from_metadata(metadata, asset=context.asset_key.to_user_string())


def _is_own(context: dg.InputContext) -> bool:
    """Whether the asset that is loaded is one that the step makes."""
    assets = context.step_context.assets_def
    return assets is not None and context.asset_key in assets.keys


def _report(
    context: dg.OutputContext,
    table: Table,
    report: StepReport,
    stored: Sequence[str],
    rows: Mapping[str, int] | None,
) -> None:
    if not stored:
        context.add_output_metadata(run_metadata(table, report))
        return
    for key, metadata in partitions_metadata(table, report, stored, rows).items():
        context.step_context.add_asset_metadata(metadata, partition_key=key)
    context.step_context.add_asset_metadata(run_metadata(table, report, of=len(stored)))


def _fail(
    context: dg.OutputContext,
    table: Table,
    result: PartitionsResult,
    stored: Sequence[str],
    rows: Mapping[str, int] | None,
) -> None:
    """Report the partitions that were stored, then fail with the others named."""
    if result.report is not None:
        of_run = run_metadata(table, result.report, of=len(stored))
        for key, metadata in partitions_metadata(table, result.report, stored, rows).items():
            context.log_event(
                dg.AssetMaterialization(context.asset_key, partition=key, metadata={**of_run, **metadata})
            )
    failed = {key: _first_line(error) for key, error in result.failed.items()}
    raise as_failure(
        DaysFailed(
            f"{len(failed)} of {len(failed) + len(stored)} partitions of {context.asset_key.to_user_string()} failed: "
            + "; ".join(f"{key}: {text}" for key, text in failed.items()),
            fix=_fixes(result.failed),
            days=failed,
        )
    ) from next(iter(result.failed.values()))


def _run_step(step: Any, table: str, days: Sequence[dt.date]) -> StepReport:
    surroundings: StepContext | None = getattr(step, "context", None)
    if surroundings is None:
        return step.run(days)
    with surroundings.turn(table), domain_watched(surroundings):
        return replace(step.run(days), domain=surroundings.domain.name)


def _log(context: dg.OutputContext, result: PartitionsResult, partitions: int, seconds: float) -> None:
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
        or "mend the data of these partitions and run them again; the others are stored"
    )
