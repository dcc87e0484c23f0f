"""Files of a table replaced by a computed entry: on the version planned on, once, by one writer."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl_assets.delta.log.entries import read_entry
from etl_assets.delta.write.content import content_of
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.lock import writer_lock
from etl_assets.delta.write.rewrite import Rewrite, Rewritten, can_rewrite, commit_rewrite
from etl_assets.delta.write.write import Transaction
from etl_assets.errors import CommitConflict, NullRefused, TableBusy
from etl_assets.orders.tables.order_status_view import ORDER_STATUS_VIEW
from etl_assets.orders.transforms.order_status import fold_orders, view_schema
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.tables import local_domain
from etl_assets_tests.unit.test_order_status import event, table


@pytest.fixture
def view(tmp_path):
    view = platform_table(ORDER_STATUS_VIEW.name, local_domain(tmp_path))
    ensure_table(view)
    return view


def rewrite(view, base, orders, *, transaction=None, lacks=None, wrong=0):
    """A rewrite of all files by some orders."""
    snapshot = view.snapshot(base)
    rows = fold_orders(table([event(order, 1) for order in orders]), view_schema().empty_table()).rows

    def write(folder):
        folder.mkdir(parents=True)
        kept = rows
        if lacks is not None:
            position = kept.schema.get_field_index(lacks)
            kept = kept.set_column(position, lacks, pa.nulls(kept.num_rows, pa.string()))
        pq.write_table(kept, folder / f"part-{uuid.uuid4()}.parquet", store_schema=False)
        removed = tuple(content_of(snapshot).values())
        before = sum(file.rows for file in removed)
        return Rewritten(removed=removed, source_rows=5, inserted=len(orders) - before + wrong, updated=1)

    transaction = None if transaction is None else Transaction(app_id="source", version=transaction)
    return Rewrite(base_version=base, write=write, transaction=transaction, cursors={"source": base})


def orders_in(view):
    files = [view.path / file for file in view.snapshot().files()]
    return sorted(name for file in files for name in pq.read_table(file).column("order_id").to_pylist())


def test_files_go_and_files_come_in_one_entry(view):
    assert can_rewrite(view, view.snapshot())
    commit_rewrite(view, rewrite(view, 0, "ab"))
    done = commit_rewrite(view, rewrite(view, 1, "cde"))
    assert (done.version, done.source_rows, done.inserted, done.updated, done.ignored) == (2, 5, 1, 1, 3)
    assert orders_in(view) == ["c", "d", "e"]
    entry = read_entry(view.path, 2)
    assert (len(entry.added), len(entry.removed)) == (1, 1)
    assert entry.transactions == {"source": 1}
    (file,) = content_of(view.snapshot()).values()
    assert file.statistics["minValues"] == {"tenant_id": "a", "order_id": "c", "last_offset": 1}


def test_a_transaction_counts_once(view):
    first = rewrite(view, 0, "a", transaction=7)
    commit_rewrite(view, first)
    again = commit_rewrite(view, rewrite(view, 1, "b", transaction=7))
    assert (again.repeated, again.version) == (True, 1)
    assert commit_rewrite(view, first).repeated
    assert orders_in(view) == ["a"]


def test_who_planned_on_an_older_version_writes_nothing(view):
    one, other = rewrite(view, 0, "a"), rewrite(view, 0, "b")
    commit_rewrite(view, one)
    with pytest.raises(CommitConflict):
        commit_rewrite(view, other)
    assert orders_in(view) == ["a"]
    assert len(list(view.path.rglob("*.parquet"))) == 1


def test_another_writer_is_waited_for(view):
    held = writer_lock(view.lock_path, table=view.name, wait_seconds=0, driver_pid=None)
    with held, pytest.raises(TableBusy):
        commit_rewrite(view, rewrite(view, 0, "a"), wait_seconds=0)
    assert view.version() == 0


def test_a_row_without_what_it_must_have_is_refused(view):
    with pytest.raises(NullRefused, match="last_event_id"):
        commit_rewrite(view, rewrite(view, 0, "a", lacks="last_event_id"))
    assert view.version() == 0
    assert not list(view.path.rglob("*.parquet"))


def test_a_rewrite_that_lost_a_row_is_not_committed(view):
    commit_rewrite(view, rewrite(view, 0, "ab"))
    with pytest.raises(RuntimeError, match="2 rows of order_status_view became 1 when rewritten"):
        commit_rewrite(view, rewrite(view, 1, "ab", wrong=1))
    assert view.version() == 1


def test_checkpoints_come_as_with_delta(view):
    for base in range(10):
        commit_rewrite(view, rewrite(view, base, "a"))
    assert (view.path / "_delta_log" / "00000000000000000010.checkpoint.parquet").is_file()
    assert orders_in(view) == ["a"]
