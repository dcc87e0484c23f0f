"""A table in PostgreSQL that follows a table of the platform, exactly once.

A delivery is one transaction. It locks the position's row, compares it with where the delivery begins, writes
rows and position, and commits. So a second writer waits and is then refused, and a lost answer to COMMIT
shows in the position. Each batch is copied into a temporary table and upserted under a savepoint; of a batch
that the server refuses, halves are tried until single rows are left, which are rejected. A whole delivery to
an empty table is copied straight into it, which costs the server less than half.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.errors import SinkFenced
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.pipelines.sink_specs.postgres import POSITIONS
from etl_assets.sinks.postgres.csv_rows import csv_of, json_of
from etl_assets.sinks.postgres.failures import OF_ROWS, named, words
from etl_assets.sinks.postgres.target_table import columns_of, prepare_tables
from etl_assets.sinks.sink import Delivered, Delivery, Guarantee, Rejection, SinkPosition

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.contracts.columns import TableContract

_ROWS, _KEYS = sql.Identifier("etl_assets_rows"), sql.Identifier("etl_assets_keys")
_REJECTIONS_AT_ONCE = 1_000


@dataclass(kw_only=True)
class PostgresSink:
    """The sink.

    Attributes:
        session: The connection; transactions are begun by this class.
        schema: The target's schema.
        table: The target's table.
        target: The target for people.
        owner: Pipeline and sink, the key of the position.
    """

    session: psycopg.Connection = field(repr=False)
    schema: str
    table: str
    target: str
    owner: tuple[str, str]
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    keeps_position: bool = True
    applies_deletes: bool = True
    _contract: TableContract | None = None

    def prepare(self, contract: TableContract) -> None:
        """Create the target for the columns of a table, or add and widen columns."""
        self._contract = contract
        with named(self.target):
            prepare_tables(self.session, contract, self.schema, self.table, self.owner, self.target)

    def position(self) -> SinkPosition | None:
        """Return the target's position; None if it has nothing."""
        with named(self.target):
            return self._position(sql.SQL(""))

    def deliver(self, delivery: Delivery) -> Delivered:
        """Bring the target to a delivery's position, in one transaction.

        Raises:
            SinkFenced: another writer has moved the position.
        """
        assert self._contract is not None  # `prepare` was called
        with named(self.target), self.session.transaction():
            self._take_position(delivery)
            done = _Load(self.session, self._contract, self._name, delivery).run()
            self.session.execute(
                sql.SQL(
                    "UPDATE {} SET table_id = %s, version = %s, tombstones = %s, delivered_at = now()"
                    " WHERE pipeline = %s AND sink = %s"
                ).format(self._positions),
                (delivery.after.stored_id, delivery.after.version, delivery.after.tombstones, *self.owner),
            )
            failpoint(Failpoint.SINK_BEFORE_TARGET_COMMIT, table=self.table)
            delivery.expect_current()
        failpoint(Failpoint.SINK_AFTER_TARGET_COMMIT, table=self.table)
        return done

    def close(self) -> None:
        """Close the connection."""
        with suppress(psycopg.Error):
            self.session.close()

    @property
    def _name(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.table)

    @property
    def _positions(self) -> sql.Identifier:
        return sql.Identifier(self.schema, POSITIONS)

    def _position(self, lock: sql.SQL) -> SinkPosition | None:
        query = sql.SQL("SELECT table_id, version, tombstones FROM {} WHERE pipeline = %s AND sink = %s {}")
        row = self.session.execute(query.format(self._positions, lock), self.owner).fetchone()
        if row is None:
            return None
        return SinkPosition.stored(*row)

    def _take_position(self, delivery: Delivery) -> None:
        """Lock the position, which must be the one that the delivery begins at."""
        if delivery.before is None:
            made = self.session.execute(
                sql.SQL("INSERT INTO {} VALUES (%s, %s, %s, '', -1, -1) ON CONFLICT DO NOTHING").format(
                    self._positions
                ),
                (*self.owner, self.table),
            )
            is_ours = made.rowcount == 1
        else:
            is_ours = self._position(sql.SQL("FOR UPDATE")) == delivery.before
        if not is_ours:
            raise SinkFenced(
                f"another writer has moved the position of {self.target}",
                fix="nothing: the next run goes on from there",
                sink=self.target,
            )


class _Load:
    """The rows of one delivery, within its transaction."""

    def __init__(
        self, session: psycopg.Connection, contract: TableContract, name: sql.Identifier, delivery: Delivery
    ) -> None:
        self._session, self._contract, self._name, self._delivery = session, contract, name, delivery
        self._columns = columns_of(contract)
        self._written = self._unchanged = self._deleted = self._rejected = 0
        self._rejections: list[Rejection] = []
        self._begins_empty = False

    def run(self) -> Delivered:
        columns, keys = self._listed(self._columns), self._listed(self._contract.merge_key)
        make = "CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA"
        self._session.execute("SET CONSTRAINTS ALL IMMEDIATE")
        self._session.execute(sql.SQL(make).format(_ROWS, columns, self._name))
        self._session.execute(sql.SQL(make).format(_KEYS, keys, self._name))
        self._begins_empty = self._delivery.whole and self._is_empty()
        for batch in self._delivery.rows():
            rows = batch.select(self._columns)
            if not (self._begins_empty and self._copied(rows)):
                self._write(rows)
        if not self._begins_empty:
            self._delete(keys)
        self._hand_over()
        return Delivered(
            written=self._written,
            unchanged=self._unchanged,
            deleted=self._deleted,
            rejected=self._rejected,
        )

    def _is_empty(self) -> bool:
        """Return whether the table has no rows, and the server lets rows be copied into it."""
        found = self._session.execute(
            sql.SQL("SELECT NOT row_security_active(%s::regclass) AND NOT EXISTS (SELECT FROM {})").format(
                self._name
            ),
            (self._name.as_string(self._session),),
        ).fetchone()
        return found == (True,)

    def _copied(self, rows: pa.RecordBatch) -> bool:
        """Copy rows into the table; return whether the server takes all of them."""
        try:
            with self._session.transaction():
                written = self._copy(self._name, rows)
        except OF_ROWS:  # one is to be rejected, or another process has written its key meanwhile
            return False
        self._written += written
        self._unchanged += rows.num_rows - written
        return True

    def _write(self, rows: pa.RecordBatch) -> None:
        """Write rows, each half by itself where the server refuses some."""
        left = [rows]
        while left:
            part = left.pop()
            try:
                with self._session.transaction():
                    written = self._upsert(part)
            except OF_ROWS as error:
                if part.num_rows == 1:
                    self._reject(part, error)
                else:
                    half = part.num_rows // 2
                    left += [part.slice(half), part.slice(0, half)]
            else:
                self._written += written
                self._unchanged += part.num_rows - written

    def _upsert(self, rows: pa.RecordBatch) -> int:
        columns, keys = self._listed(self._columns), self._listed(self._contract.merge_key)
        self._session.execute(sql.SQL("TRUNCATE {}").format(_ROWS))
        self._copy(_ROWS, rows)
        others = [name for name in self._columns if name not in self._contract.merge_key]
        action = sql.SQL("NOTHING")
        if others:
            action = sql.SQL("UPDATE SET {} WHERE ROW({}) IS DISTINCT FROM ROW({})").format(
                sql.SQL(", ").join(
                    sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others
                ),
                self._listed(others, of="t"),
                self._listed(others, of="excluded"),
            )
        done = self._session.execute(
            sql.SQL("INSERT INTO {} AS t ({}) SELECT {} FROM {} ON CONFLICT ({}) DO {}").format(
                self._name, columns, columns, _ROWS, keys, action
            )
        )
        if self._delivery.whole and not self._begins_empty:
            self._session.execute(sql.SQL("INSERT INTO {} SELECT {} FROM {}").format(_KEYS, keys, _ROWS))
        return done.rowcount

    def _delete(self, keys: sql.Composed) -> None:
        if not self._delivery.whole:
            for batch in self._delivery.deleted():
                self._copy(_KEYS, batch.select(list(self._contract.merge_key)))
        self._session.execute(sql.SQL("ANALYZE {}").format(_KEYS))
        same = sql.SQL("({}) = ({})").format(
            self._listed(self._contract.merge_key, of="t"), self._listed(self._contract.merge_key, of="k")
        )
        found = sql.SQL("NOT EXISTS" if self._delivery.whole else "EXISTS")
        done = self._session.execute(
            sql.SQL("DELETE FROM {} AS t WHERE {} (SELECT FROM {} AS k WHERE {})").format(
                self._name, found, _KEYS, same
            )
        )
        self._deleted = done.rowcount

    def _copy(self, table: sql.Identifier, rows: pa.RecordBatch) -> int:
        """Copy rows, and return how many the server has stored: a user's trigger may leave some out."""
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)")
        cursor = self._session.cursor()
        with cursor.copy(statement.format(table, self._listed(rows.schema.names))) as copy:
            copy.write(csv_of(rows))
        return cursor.rowcount

    def _reject(self, row: pa.RecordBatch, error: psycopg.Error) -> None:
        (values,) = row.to_pylist()
        self._rejected += 1
        self._rejections.append(
            Rejection(
                keys=json_of({name: values[name] for name in self._contract.merge_key}),
                row=json_of(values),
                reason=DeadLetterReason.REFUSED_BY_TARGET.value,
                error=words(error),
            )
        )
        if len(self._rejections) >= _REJECTIONS_AT_ONCE:
            self._hand_over()

    def _hand_over(self) -> None:
        """Store the rejected rows, before the transaction commits."""
        if self._rejections:
            self._delivery.reject(self._rejections)
            self._rejections = []

    @staticmethod
    def _listed(names: Any, of: str | None = None) -> sql.Composed:
        def named_columns() -> Iterator[sql.Identifier]:
            for name in names:
                yield sql.Identifier(name) if of is None else sql.Identifier(of, name)

        return sql.SQL(", ").join(named_columns())
