"""Metadata of tables and commits for the Dagster UI: columns, lineage, metrics, chart."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from etl_assets.contracts.columns import TableContract
from etl_assets.delta.table import Table
from etl_assets.errors import EtlAssetsError
from etl_assets.observability.asset_lag import source_lag, table_lag
from etl_assets.observability.outcomes import outcomes_by_day
from etl_assets.observability.outcomes_chart import outcomes_chart
from etl_assets.pipelines.catalog import Catalog
from etl_assets.steps.step import INSERTED, StepReport, logger

if TYPE_CHECKING:
    from collections import Counter

    from etl_assets.settings import Settings
    from etl_assets.sources.captures.table_view import TableView

CHART_DAYS = 30


def definition_metadata(
    contract: TableContract, catalog: Catalog, path: Path | None = None
) -> dict[str, Any]:
    """Return column types, descriptions and lineage from the contract.

    Includes the table's path, if it never changes.
    """
    columns = [
        dg.TableColumn(
            name=column.name,
            type=column.type,
            description=column.description,
            constraints=dg.TableColumnConstraints(
                nullable=column.nullable,
                unique=contract.merge_key == (column.name,),
                other=[rule.brief for rule in column.rules],
            ),
        )
        for column in contract.columns
    ]
    lineage = {
        column: [
            dg.TableColumnDep(asset_key=dg.AssetKey(asset), column_name=name)
            # Two tables of one stage may supply the same column.
            for asset, name in dict.fromkeys(
                (_asset_of(source.table, catalog), source.column) for source in sources
            )
        ]
        for column, sources in contract.lineage().items()
    }
    metadata: dict[str, Any] = {
        "dagster/column_schema": dg.TableSchema(columns=columns),
        "dagster/table_name": contract.name,
        "merge_key": ", ".join(contract.merge_key),
    }
    if path is not None:
        metadata["dagster/uri"] = str(path)
    if lineage:
        metadata["dagster/column_lineage"] = dg.TableColumnLineage(deps_by_column=lineage)
    return metadata


def _asset_of(table: str, catalog: Catalog) -> str:
    """Return the asset that writes a table. A stage also writes the table of its rejected rows."""
    stage = catalog.stage_of(table)
    return table if stage is None else stage.name


def lag_metadata(table: Table, settings: Settings | None) -> dict[str, Any]:
    """Return how far a table of the platform is behind its input now, after the step.

    What cannot be told is left out: a source may not answer, and the step has succeeded all the same.
    """
    stage = None if table.contract is None else table.domain.catalog.stage_of(table.name)
    if stage is None:
        return {}
    now = dt.datetime.now(dt.UTC)
    try:
        lag = (
            source_lag(stage, settings, now)
            if stage.source is not None and settings is not None
            else table_lag(stage, table.domain, now)
        )
    except (EtlAssetsError, OSError) as error:
        logger.warning("how far %s is behind cannot be told now: %s", table.name, error)
        return {}
    figures = {} if lag is None else {"rows": lag.rows, "seconds": lag.seconds, "files": lag.files}
    return {f"lag_{name}": value for name, value in figures.items() if value is not None}


def run_metadata(
    table: Table, report: StepReport, *, of: int = 1, settings: Settings | None = None
) -> dict[str, Any]:
    """Return the metrics of the whole commit, the same on every partition's materialization.

    Args:
        table: The table written.
        report: The step's report.
        of: Number of partitions of the step. With more than one, totals are named as such.
        settings: The platform file, by which the lag of a source is told; None: it is left out.
    """
    snapshot = table.snapshot()
    metadata: dict[str, Any] = {
        "dagster/uri": str(table.path),
        # Texts, so that Dagster does not plot them.
        "table_version": str(report.version),
        "commits": str(report.commits),
        "domain": report.domain or table.domain.name,
    }
    if snapshot is not None:
        metadata["dagster/row_count"] = snapshot.row_count()
    prefix = "" if of == 1 else "run_total/"
    names = table.domain.catalog.figures
    metadata |= {prefix + name: value for name, value in _figures(report.total(), names).items()}
    if report.notes:
        metadata["notes"] = dg.MetadataValue.md("\n".join(f"- {note}" for note in report.notes[:50]))
    stage = None if table.contract is None else table.domain.catalog.stage_of(table.name)
    if stage is not None and stage.source is not None:
        chart = outcomes_chart(outcomes_by_day(table.domain, stage, newest=CHART_DAYS))
        metadata["outcomes_by_day"] = dg.MetadataValue.md(chart)
    return metadata | lag_metadata(table, settings) | _captured_metadata(table, settings)


def capture_metadata(view: TableView) -> dict[str, Any]:
    """Return what the UI shows of a captured table: phase, progress of its copy, lag, and its error.

    What is not known is left out. The lag is that of the last look at the log.
    """
    found = view.as_json()
    figures = {name: found[name] for name in ("rows_copied", "rows_total", "lag_bytes", "lag_seconds")}
    metadata = {f"capture/{name}": value for name, value in figures.items() if value is not None}
    metadata |= {"capture/phase": found["phase"], "capture/table": f"{found['capture']}: {found['table']}"}
    if (error := found["error"]) is not None:
        names = ("reason", "solution", "retry_policy", "next_attempt_at", "ended_by")
        metadata |= {f"capture/{name}": error[name] for name in names if error[name] is not None}
    return metadata


def _captured_metadata(table: Table, settings: Settings | None) -> dict[str, Any]:
    """Return what is known of a table as one of a capture; nothing of other tables."""
    from etl_assets.captures import captured_tables

    pipeline = table.domain.catalog.pipeline_of(table.name)
    if settings is None or pipeline is None or table.name not in (pipeline.name, f"{pipeline.name}_source"):
        return {}
    view = captured_tables(settings, (pipeline.name,)).get(pipeline.name)
    return {} if view is None else capture_metadata(view)


def partitions_metadata(
    table: Table, report: StepReport, keys: Iterable[str], rows: Mapping[str, int] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the metrics of each partition: the run's changes to it, and its rows now.

    Args:
        table: The table written.
        report: The step's report.
        keys: The partitions.
        rows: Number of rows of the partitions for which it is known; None for a table of the platform, which
            is asked.
    """
    keys = list(keys)
    if rows is None:
        rows = _rows_by_day(table, keys)
    metadata: dict[str, dict[str, Any]] = {
        key: dict(_figures(_counts_of(report, key), table.domain.catalog.figures)) for key in keys
    }
    for key in metadata.keys() & rows.keys():
        metadata[key]["dagster/partition_row_count"] = rows[key]
    return metadata


def _rows_by_day(table: Table, keys: Iterable[str]) -> dict[str, int]:
    if table.contract is None or not table.contract.delta_partition:
        return {}
    snapshot = table.snapshot()
    rows = {} if snapshot is None else snapshot.rows_by(table.contract.delta_partition[0])
    return {key: rows.get((key,), 0) for key in keys}


def _counts_of(report: StepReport, key: str) -> Mapping[str, int]:
    counts: Mapping[Any, Counter[str]] = report.counts
    if key in counts:
        return counts[key]
    try:
        return counts.get(dt.date.fromisoformat(key), {})
    except ValueError:
        return {}


def _figures(counts: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """Return the metrics to show of some names, with `inserted` = 0 if something was read and nothing was
    inserted.
    """
    told = {INSERTED: 0, **counts} if counts else counts
    return {name: told[name] for name in names if name in told}
