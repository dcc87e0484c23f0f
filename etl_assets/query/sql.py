"""SQL queries over acknowledged versions of the platform's tables, by deltalake's engine (DataFusion)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from etl_assets.errors import NotFound, QueryRefused
from etl_assets.query.opened_table import OpenedTable, opened_from
from etl_assets.query.readers import Reader, expect_readable
from etl_assets.query.refusals import interrupted, missing_table, needs_quotes, refusal, unknown_table
from etl_assets.query.statement import as_query

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.pipelines.row_versions import RowVersions
    from etl_assets.placement.domains import FailureDomain

ENGINE_SETTINGS = {
    # The engine's default dialect reads `event_id, offset` as a stray comma and the clause OFFSET.
    "datafusion.sql_parser.dialect": "PostgreSQL",
    # Unquoted names are lower-cased: SELECT EVENT_ID FROM ORDERS.
    "datafusion.sql_parser.enable_ident_normalization": "true",
    # Spark's own writer stores times of any year, which nanoseconds cannot hold.
    "datafusion.execution.parquet.coerce_int96": "us",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """Result of a query, read while it is iterated over.

    Attributes:
        tables: The tables that the query names, as they were opened.
        reader: The rows.
    """

    tables: tuple[OpenedTable, ...]
    reader: pa.RecordBatchReader

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self.reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches.

        Raises:
            QueryRefused: an expression of the query fails for a row.
            FilesGone: a data file no longer exists.
            StorageFailed: a data file cannot be read.
        """
        import pyarrow as pa

        try:
            yield from self.reader
        except (pa.ArrowException, OSError) as error:
            raise interrupted(str(error), [table.name for table in self.tables]) from error


def run_query(statement: str, domain: FailureDomain, *, limit: int | None = None) -> QueryResult:
    """Run one query over the newest acknowledged versions of the tables it names. No other table is opened.

    Args:
        statement: One SQL query. Other statements are refused.
        domain: The domain to read tables from.
        limit: Maximum number of rows.

    Raises:
        QueryRefused: the statement is not a query, has an error, or names a missing column or function.
        NotFound: it names a table that does not exist.
        FeatureUnsupported: a table uses Delta features that the engine does not support.
        QuorumUnavailable: too few failure domains answer to determine the acknowledged version of a table.
    """
    catalog = domain.catalog

    def open_named(name: str) -> OpenedTable:
        try:
            catalog.contract_of(name)
        except NotFound as error:
            known = (*catalog.every_name(), *catalog.versions)
            raise unknown_table(name, known, catalog.unlisted()) from error
        return opened_from(domain, name)

    return _run(statement, limit, open_named, catalog.versions)


def rows_of(table: OpenedTable, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of one table, in memory.

    Args:
        table: The table.
        columns: Columns to read; None for all.

    Raises:
        QueryRefused: the table has no such column.
        FeatureUnsupported, FilesGone, StorageFailed: as for queries.
    """
    import pyarrow as pa

    names = "*" if columns is None else ", ".join(map(_quoted, columns))
    result = _run(f"SELECT {names} FROM {_quoted(table.name)}", None, {table.name: table}.__getitem__)
    return pa.Table.from_batches(result.batches(), result.schema)


def _run(
    statement: str,
    limit: int | None,
    open_named: Callable[[str], OpenedTable],
    versions: Mapping[str, RowVersions] = MappingProxyType({}),
) -> QueryResult:
    import pyarrow as pa
    from deltalake import QueryBuilder
    from deltalake.exceptions import DeltaError

    text = as_query(statement, limit)
    builder, tables = QueryBuilder(ENGINE_SETTINGS), dict[str, OpenedTable]()

    def register(name: str) -> None:
        tables[name] = open_named(name)
        expect_readable(tables[name], Reader.SQL)
        builder.register(_quoted(name), tables[name].delta())

    # Only the engine knows which names of a statement are tables. Run the statement, register the unknown
    # table that the error names, and run it again.
    while True:
        try:
            found = builder.execute(text)
            break
        except DeltaError as error:
            name = missing_table(str(error))
            if name is None or name in tables:
                raise needs_quotes(name) if name else refusal(str(error), statement) from error
        if (found_versions := versions.get(name)) is None:
            register(name)
            continue
        if found_versions.history not in tables:
            register(found_versions.history)
        try:
            builder.execute(f"CREATE VIEW {_quoted(name)} AS {found_versions.sql()}")
        except DeltaError as error:
            raise QueryRefused(
                f"{name} cannot be made of {found_versions.history}: {refusal(str(error), '').message}",
                fix="run the pipeline, if the table got a column: the next step adds it to the history",
                table=name,
            ) from error
    result = QueryResult(tables=tuple(tables.values()), reader=pa.RecordBatchReader.from_stream(found))
    if not result.schema.names:
        raise QueryRefused("the query gives no columns", fix="name some, or *: SELECT * FROM orders")
    return result


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))
