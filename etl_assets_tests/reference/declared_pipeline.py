"""A declared pipeline for tests: records committed as its ingest commits them, and the step that makes its
table.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etl_assets.contracts import canonical_json
from etl_assets.contracts.columns import Column, TableContract
from etl_assets.delta.write.commit import commit
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.write import Write
from etl_assets.pipelines.catalog import Catalog
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.pipelines.spec import PipelineSpec
from etl_assets.pipelines.stage import Stage
from etl_assets.placement.domains import FailureDomain
from etl_assets.placement.site import Site
from etl_assets.steps.few_rows import deferred, write_rows
from etl_assets.steps.load_table import LoadTable
from etl_assets.steps.step import ReadMode, StepContext, StepReport

NOW = dt.datetime(2026, 1, 7, 12, tzinfo=dt.UTC)
DAY = dt.date(2026, 1, 5)
COUNTRIES = TableContract(
    name="countries",
    description="Countries.",
    columns=(
        Column("code", "STRING", "The code."),
        Column("region", "STRING", "The region.", nullable=True),
    ),
    merge_key=("code",),
)
PEOPLE: Mapping[str, Any] = {
    "name": "people",
    "source": {"type": "files", "path": "landing/people/*.jsonl"},
    "columns": {
        "id": {"type": "string", "required": True, "not_empty": True},
        "age": {"type": "int", "at_least": 0},
        "country": "string",
        "updated_at": "timestamp",
    },
    "table": {"keys": ["id"], "sequence_by": "updated_at"},
}
"""The declaration of most tests."""
CHANGES: dict[str, Any] = {
    **PEOPLE,
    "columns": {
        "id": {"type": "string", "required": True},
        "age": {"type": "int", "required": True, "at_least": 0},
        "changed_at": "bigint",
        "op": {"type": "string", "one_of": ["U", "D", "T"]},
    },
    "table": {
        "write_mode": "apply_changes",
        "keys": ["id"],
        "sequence_by": "changed_at",
        "apply_as_deletes": "op = 'D'",
        "apply_as_truncates": "op = 'T'",
        "except_column_list": ["op"],
    },
}
"""The same with deletes and truncates."""


def upsert(key: str | None, at: int | None, age: int | None = 1) -> dict[str, Any]:
    return {"id": key, "changed_at": at, "age": age, "op": "U"}


def delete(key: str | None, at: int | None) -> dict[str, Any]:
    return {"id": key, "changed_at": at, "op": "D"}


def truncate(at: int | None) -> dict[str, Any]:
    return {"changed_at": at, "op": "T"}


def canonical(text: str) -> str:
    """JSON in its canonical form."""
    value, is_fast = canonical_json.parse(text.encode())
    return (canonical_json.write_fast(value) if is_fast else canonical_json.write(value)).decode()


def declared(**changes: Any) -> PipelineSpec:
    """`PEOPLE` with some fields replaced."""
    return PipelineSpec.model_validate({**PEOPLE, **changes})


def no_step(arguments: Any) -> Any:
    raise AssertionError(arguments)


def tables_of(spec: PipelineSpec) -> DeclaredTables:
    """The tables of a pipeline beside `COUNTRIES`."""
    return DeclaredTables(spec=spec, contract_of=_others.table)


def _stage(
    table: TableContract,
    *inputs: str,
    rejects: TableContract | None = None,
    tombstones: TableContract | None = None,
) -> Stage:
    return Stage(
        table=table, build_step=no_step, group="test", inputs=inputs, rejects=rejects, tombstones=tombstones
    )


_others = Catalog(pipelines=(Pipeline(name="reference", path=(), reference=(_stage(COUNTRIES),)),))


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A pipeline in a root folder, which may be that of one of several failure domains."""

    root: Path
    session: Callable[[], Any]
    spec: PipelineSpec = field(default_factory=declared)
    domain: str = "local"
    sites: tuple[Site, ...] = ()

    @property
    def tables(self) -> DeclaredTables:
        return tables_of(self.spec)

    @property
    def context(self) -> StepContext:
        tables = self.tables
        path = (
            _stage(tables.source, rejects=tables.source_rejects),
            _stage(tables.table, tables.source.name, rejects=tables.rejects, tombstones=tables.tombstones),
        )
        catalog = Catalog(pipelines=(*_others.pipelines, Pipeline(name=self.spec.name, path=path)))
        domain = FailureDomain(name=self.domain, root=self.root, sites=self.sites, catalog=catalog)
        return StepContext(session=self.session, domain=domain, clock=lambda: NOW, lock_wait_seconds=30)

    def accept(self, records: Sequence[Any], *, day: dt.date = DAY, first_line: int | None = None) -> None:
        """Commit records to the source table as one batch, in their order; by default their file goes on."""
        contract = self.tables.source
        table = self.context.table(contract.name)
        base = ensure_table(table)
        snapshot = table.snapshot(base)
        assert snapshot is not None
        first = snapshot.row_count()
        rows = []
        for offset, record in enumerate(records, first):
            text = canonical(json.dumps(record))
            fingerprint = hashlib.sha256(text.encode()).hexdigest()
            line = offset + 1 if first_line is None else first_line + offset - first
            position = f"{day}/a.jsonl:{line}"
            rows.append(
                (
                    offset,
                    f"{position}|{fingerprint}",
                    text,
                    fingerprint,
                    "files",
                    position,
                    "local",
                    NOW,
                    base + 1,
                    day,
                )
            )
        self._commit(contract, rows)

    def keep_countries(self, regions: Mapping[str, str | None]) -> None:
        self._commit(COUNTRIES, list(regions.items()))

    def _commit(self, contract: TableContract, rows: Sequence[Sequence[Any]]) -> None:
        table = self.context.table(contract.name)
        base = ensure_table(table)
        named = [dict(zip(contract.names, row, strict=True)) for row in rows]
        write = Write(
            rows=deferred(self.context, contract, named),
            base_version=base,
            files=lambda folder, known: write_rows(folder, contract, named),
        )
        commit(table, write)

    def load(self, mode: ReadMode = ReadMode.INCREMENTAL) -> StepReport:
        return LoadTable(context=self.context, mode=mode, tables=self.tables).run()

    def rows(self, name: str | None = None, order_by: str = "id") -> list[dict[str, Any]]:
        """All rows of a table, by default the pipeline's, read by delta-rs; empty when it does not exist."""
        snapshot = self.context.table(name or self.spec.table_name).snapshot()
        rows = [] if snapshot is None else snapshot.dataset().to_table().to_pylist()
        return sorted(rows, key=lambda row: str(row[order_by]))

    def rows_by_spark(self) -> list[dict[str, Any]]:
        """The pipeline's rows as Spark reads a table whose columns have changed."""
        path = str(self.context.table(self.spec.table_name).path)
        return self.session().read.format("delta").load(path).orderBy("id").toArrow().to_pylist()

    def dead_letters(self) -> list[tuple[int, str, str]]:
        """Offset, reason and error of the rejected records."""
        rows = self.rows(self.tables.rejects.name, "original_offset")
        return sorted((row["original_offset"], row["reason"], row["error"]) for row in rows)
