"""`DeltaUpsertIOManager` stores the DataFrames that assets return in Delta tables.

The frames are of Spark, pandas, Polars or pyarrow. The asset's metadata says how they are written
(`WriteSpec(...).to_metadata()`, or the keys by hand):

```python
@dg.asset(
    partitions_def=daily,
    metadata=WriteSpec(keys=("id",), sequence_by="updated_at", delta_partition="day").to_metadata(),
    io_manager_key="delta",
)
def readings(spark: SparkResource) -> "DataFrame": ...
```

A repeated materialization changes nothing (for `append`: a repetition of the same run). A backfill in one run
is one commit. The commit's metrics are on the materialization. Steps of the platform (`etl_assets.steps`) are
stored the same way.
"""

import datetime as dt
import re
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from etl_assets.built_in import NAMES
from etl_assets.delta.asset_record import AssetRecord, expect_same_asset
from etl_assets.delta.table import Table
from etl_assets.delta.write.frame_columns import check_frame
from etl_assets.delta.write.write_spec import WriteMode, WriteSpec
from etl_assets.error_policy import spark_went_away
from etl_assets.errors import ContractError, NotFound
from etl_assets.installed import built_in_catalog, installed
from etl_assets.io_managers.frame_step import FrameStep
from etl_assets.io_managers.loading import (
    before_the_first,
    columns_known,
    partition_column,
    rows_of_partitions,
    spec_of,
)
from etl_assets.io_managers.partition_keys import values_by_key
from etl_assets.io_managers.partition_split import run_partitions
from etl_assets.io_managers.placed import expect_own_name, own_context, settings_of
from etl_assets.io_managers.reports import fail_with_the_others, log_result, report_partitions
from etl_assets.io_managers.requested_frames import as_requested
from etl_assets.io_managers.returned_frames import spark_frame
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.mirroring.stores.circuit_breaker import DEFAULT_TIMEOUT_SECONDS
from etl_assets.pipelines.catalog import Catalog
from etl_assets.placement.domains import FailureDomain
from etl_assets.placement.observations import Observations
from etl_assets.placement.site import Site
from etl_assets.resources.cancellation import cancel_on_interrupt
from etl_assets.resources.failures import as_failure
from etl_assets.resources.spark import SparkResource, renew_sessions
from etl_assets.steps.step import StepContext, StepReport, domain_watched

_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class DeltaUpsertIOManager(dg.ConfigurableIOManager):
    """Store DataFrames in Delta tables by upsert, insert, append or replacement, and load them.

    Attributes:
        root: Folder of the failure domain; the table of asset `a/b` is `<root>/tables/a.b/<content
            generation>`.
        domain: The domain's name, for the metadata.
        health: File with the observed health of the domains; empty for none.
        timeout_seconds: Timeout of each request to a domain.
        sites: `name`, `root` and `role` of all domains, this one included, if tables are mirrored over
            several.
        spark: The session to load with.
        lock_wait_seconds: How long to wait for another writer of the same table.
        home: Home folder of the installation, for its declared pipelines; empty if it has none.
        built_in: The built-in pipelines of the installation.
        defs_folders: Defs folders of Dagster projects that declare more of them.

    Guarantees:

    - A row is stored once per key; an appended row is stored once per run.
    - A replacement is one commit.
    - A commit is durable before the materialization is reported.
    - Two processes that write one table at the same time lose nothing.
    - In a run over many partitions, those that fail do not keep the others from being stored and reported.
    """

    root: str
    domain: str = "local"
    sites: list[dict[str, str]] = Field(default=[])
    health: str = ""
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    spark: dg.ResourceDependency[SparkResource]
    lock_wait_seconds: float = 60.0
    home: str = ""
    built_in: list[str] = Field(default=list(NAMES))
    defs_folders: list[str] = Field(default=[])

    @property
    def _catalog(self) -> Catalog:
        """The tables of the installation."""
        if not self.home:
            return built_in_catalog()
        return installed(Path(self.home), tuple(self.built_in), tuple(map(Path, self.defs_folders))).catalog

    def table_of(self, key: dg.AssetKey, *, users: bool = False) -> Table:
        """Return the table of an asset.

        Args:
            key: The asset's key.
            users: Whether the asset is a user's own; its table then has no contract, whatever its name.

        Raises:
            ContractError: the asset's key cannot be a folder's name.
        """
        name = ".".join(key.path)
        if not _SAFE_NAME.fullmatch(name):
            raise ContractError(
                f"the asset key {key.to_user_string()!r} cannot name a table",
                fix="use letters, digits, `_`, `-` and `.`",
                asset=key.to_user_string(),
            )
        try:
            contract = None if users else self._catalog.table(name)
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
            catalog=self._catalog,
        )
        return Table(name=name, domain=domain, contract=contract)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Commit what an asset returned: a DataFrame or a step.

        Raises:
            dagster.Failure: with retries allowed only if the error policy allows them. If only some
                partitions failed, the others are stored and reported first.
        """
        keys = tuple(context.asset_partition_keys) if context.has_asset_partitions else ()
        table = self.table_of(context.asset_key, users=not _is_step(obj))
        surroundings: StepContext | None = None
        started = time.monotonic()
        step: FrameStep | None = None
        try:
            if _is_step(obj):
                result = run_partitions(lambda some: _run_step(obj, table.name, _days(some)), keys)
            else:
                table, surroundings = self._placed(table, context.asset_key)
                with _in_turn(surroundings, table.name):
                    step = self._frame_step(context, obj, table, keys)
                    result = run_partitions(step.run, keys)
        except Exception as error:
            if spark_went_away(error):
                renew_sessions()
            raise as_failure(error) from error
        log_result(context, result, len(keys), time.monotonic() - started)
        stored = [key for key in keys if key not in result.failed]
        rows = None if step is None else step.stored_rows(stored)
        if result.failed:
            fail_with_the_others(context, table, result, stored, rows)
        elif result.report is not None:
            settings = settings_of(self.home, table.domain) if table.contract is not None else None
            report_partitions(context, table, result.report, stored, rows, settings)

    def load_input(self, context: dg.InputContext) -> Any:
        """Return the rows of the requested partitions of the upstream asset, at the table's current version.

        The result is a frame of the kind that the parameter's annotation names; without one, Spark's. If an
        asset reads its own earlier partitions and has no table yet, it gets None if the parameter may be
        None, else an empty frame with its spec's `columns`.

        Raises:
            NotFound: the asset has not been materialized.
            ContractError: the table does not tell the requested partitions apart.
        """
        spec = spec_of(context)
        table = self.table_of(context.asset_key, users=spec is not None)
        if (settings := settings_of(self.home, table.domain)) is not None:
            table = replace(table, domain=settings.placement().reader())
        version = table.version()
        if version < 0:
            return before_the_first(context, spec, table, self.spark)
        rows = table.read(self.spark.spark_session, version)
        if not context.has_asset_partitions:
            return as_requested(context, rows)
        column = partition_column(context, spec, table)
        return as_requested(context, rows_of_partitions(context, rows, column))

    def _placed(self, table: Table, key: dg.AssetKey) -> tuple[Table, StepContext | None]:
        """Return the table in the domain that is to write it, and the context of the write in an
        installation.
        """
        asset = key.to_user_string()
        if (settings := settings_of(self.home, table.domain)) is None:
            expect_same_asset(table, asset)
            return table, None
        expect_own_name(settings, table, asset)
        context = own_context(settings, table, lambda: self.spark.spark_session)
        table = replace(table, domain=context.domain)
        with domain_watched(context):
            expect_same_asset(table, asset)
        return table, context

    def _frame_step(
        self, context: dg.OutputContext, obj: Any, table: Table, keys: tuple[str, ...]
    ) -> FrameStep:
        asset = context.asset_key.to_user_string()
        spec = WriteSpec.from_metadata(context.definition_metadata, asset=asset)
        if spec.write_mode is WriteMode.REPLACE and keys and spec.delta_partition is None:
            raise ContractError(
                f"the asset {asset} has partitions, and nothing says which rows of its table `write_mode`"
                " replace replaces",
                fix="name the column of the asset's partition in `delta_partition`",
                asset=asset,
            )
        rows = spark_frame(
            obj,
            spark=lambda: self.spark.spark_session,
            known=lambda: columns_known(table, spec, self.spark),
            asset=asset,
        )
        check_frame(spec, rows.schema, table=table.name, is_new=table.version() < 0)
        partitions = (
            values_by_key(
                context.asset_partitions_def,
                keys,
                column=spec.delta_partition,
                type_=rows.schema[spec.delta_partition].dataType,
                asset=asset,
            )
            if keys and spec.delta_partition is not None
            else {}
        )
        cancel_on_interrupt(rows.sparkSession)
        return FrameStep(
            rows=rows,
            table=table,
            spec=spec,
            all_keys=keys,
            partitions=partitions,
            run_id=_run_id(context),
            record=AssetRecord(asset=asset, write_spec=spec.to_metadata()),
            lock_wait_seconds=self.lock_wait_seconds,
        )


@contextmanager
def _in_turn(surroundings: StepContext | None, table: str) -> Generator[None]:
    """Write a table in turn with other processes, and report the loss of the domain as such."""
    if surroundings is None:
        yield
        return
    with surroundings.turn(table), domain_watched(surroundings):
        yield


def _run_id(context: dg.OutputContext) -> str:
    """Return the id that a run shares with its repetitions: step retries and re-executions."""
    run = context.step_context.dagster_run
    return run.root_run_id or run.run_id


def _is_step(obj: Any) -> bool:
    """Return whether an asset returned a step.

    The class is checked because a frame with a column `run` has an attribute of that name.
    """
    return hasattr(type(obj), "run")


def _days(keys: Sequence[str]) -> list[dt.date]:
    return [dt.date.fromisoformat(key) for key in keys]


def _run_step(step: Any, table: str, days: Sequence[dt.date]) -> StepReport:
    surroundings: StepContext | None = getattr(step, "context", None)
    if surroundings is None:
        return step.run(days)
    with surroundings.turn(table), domain_watched(surroundings):
        return replace(step.run(days), domain=surroundings.domain.name)
