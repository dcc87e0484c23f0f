"""Events folded to one row an order, held against a fold in plain Python, however they come and however files
are cut.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etl_assets.compute.shuffle import figures_by_part
from etl_assets.orders.event_contracts import EVENT_CONTRACTS, EventType
from etl_assets.orders.order_status import OrderStatus
from etl_assets.orders.steps import fold_files, order_files
from etl_assets.orders.steps.fold_files import Counts, FoldFiles
from etl_assets.orders.steps.order_files import EventFile, ViewFile
from etl_assets.orders.transforms.order_status import event_schema, fold_orders, view_schema

AT = dt.datetime(2026, 1, 5, tzinfo=dt.UTC)
MOST = Decimal(10**16) - Decimal("0.01")
AMOUNTS = {EventType.ORDER_CREATED: "order", EventType.PAYMENT_PROCESSED: "paid"}


@st.composite
def events(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Events of a few orders, of which two tenants have one of the same id; some are there twice."""
    made = []
    for offset in range(draw(st.integers(0, 12))):
        event_type = draw(st.sampled_from(sorted(EVENT_CONTRACTS)))
        event = {
            "tenant_id": draw(st.sampled_from(["a", "b"])),
            "order_id": draw(st.sampled_from(["1", "2", "3", "é" * 20])),
            "event_id": f"event-{offset}",
            "event_type": event_type.value,
            "order_status": EVENT_CONTRACTS[event_type].status.value,
            "amount": draw(st.sampled_from([None, Decimal("0.00"), Decimal("2.50"), MOST])),
            "currency": draw(st.sampled_from([None, "EUR", "USD"])),
            "customer_id": draw(st.sampled_from([None, "c", "d"])),
            "occurred_at": AT + dt.timedelta(minutes=draw(st.integers(0, 5))),
            "normalized_offset": offset,
            "committed_at": AT + dt.timedelta(hours=draw(st.integers(0, 3))),
        }
        made += [event] * draw(st.sampled_from([1, 1, 2]))
    return draw(st.permutations(made))


def folded(events: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The view's rows by key, in plain Python."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for event in events:
        key = (event["tenant_id"], event["order_id"])
        row = rows.setdefault(
            key, dict.fromkeys(view_schema().names) | {"order_amounts": {}, "paid_amounts": {}}
        )
        row["tenant_id"], row["order_id"] = key
        for name, value in (
            ("currency", event["currency"]),
            ("customer_id", event["customer_id"]),
            (f"{event['order_status']}_at", event["occurred_at"]),
        ):
            row[name] = min((each for each in (row[name], value) if each is not None), default=None)
        if row["last_offset"] is None or event["normalized_offset"] > row["last_offset"]:
            row["last_offset"], row["last_event_id"] = event["normalized_offset"], event["event_id"]
        row["updated_at"] = max(row["updated_at"] or event["committed_at"], event["committed_at"])
        if event["event_type"] in AMOUNTS and event["amount"] is not None:
            row[f"{AMOUNTS[EventType(event['event_type'])]}_amounts"][event["event_id"]] = event["amount"]
        for name in AMOUNTS.values():
            row[f"{name}_total"] = sum(row[f"{name}_amounts"].values(), Decimal(0))
        row["order_status"] = max(
            (status for status in OrderStatus if row[f"{status}_at"]), key=lambda status: status.rank
        ).value
    return rows


def by_key(rows: pa.Table) -> dict[tuple[str, str], dict[str, Any]]:
    assert rows.schema == view_schema()
    found = {
        (row["tenant_id"], row["order_id"]): row
        | {name: dict(row[name]) for name in ("order_amounts", "paid_amounts")}
        for row in rows.to_pylist()
    }
    assert len(found) == rows.num_rows
    return found


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=event_schema())


@given(events(), st.integers(0, 12), st.integers(0, 12))
def test_a_fold_in_two_goes_in_whatever_order_is_a_fold_of_all(rows, cut, again):
    before = fold_orders(table(rows[:cut]), view_schema().empty_table()).rows
    # A slice, as a table read from a file in pieces may be.
    stored = pa.concat_tables([before, before]).slice(before.num_rows)
    result = fold_orders(table(rows[min(cut, again) :]), stored)
    expected = folded(rows)
    assert by_key(result.rows) == expected
    known = folded(rows[:cut])
    assert result.inserted == len(expected.keys() - known.keys())
    assert result.updated == sum(expected[key] != known[key] for key in known)
    assert result.read == len(folded(rows[min(cut, again) :]))
    changed = by_key(result.rows.filter(pa.array(result.is_changed)))
    assert changed.keys() == {key for key in expected if expected[key] != known.get(key)}


@pytest.mark.parametrize(
    "wrong", [{"order_status": "created"}, {"order_total": Decimal(1)}, {"paid_total": Decimal(1)}]
)
def test_what_a_former_rule_left_is_made_right_and_counts_as_changed(wrong):
    rows = table([event("a", 1), event("b", 2)])
    right = fold_orders(rows, view_schema().empty_table()).rows
    stored = pa.Table.from_pylist(
        [row | wrong if row["order_id"] == "a" else row for row in right.to_pylist()], schema=view_schema()
    )
    result = fold_orders(rows, stored)
    assert by_key(result.rows) == by_key(right)
    assert (result.inserted, result.updated) == (0, 1)


def put(rows: pa.Table, file: Path) -> Path:
    pq.write_table(rows, file, row_group_size=2)
    return file


class View:
    """Files of a view in a folder, changed by folds as the table is by their commits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: tuple[ViewFile, ...] = ()
        self._folds = 0

    def fold(self, rows: list[list[dict[str, Any]]], *, after: int = -1) -> tuple[Counts, set[str]]:
        """What `FoldFiles` says of a fold of some files, and the files that went."""
        self._folds += 1
        news = self.folder / f"news-{self._folds}"
        news.mkdir()
        files = []
        for number, each in enumerate(rows):
            known = table(each).append_column("batch_id", pa.array([after + 1] * len(each), pa.int64()))
            old = table(each[:1]).append_column("batch_id", pa.array([after] * len(each[:1]), pa.int64()))
            old = old.set_column(2, "event_id", pa.array(["read before"] * len(old), pa.string()))
            files.append(
                EventFile(path=str(put(pa.concat_tables([old, known]), news / str(number))), after=after)
            )
        out = self.folder / f"fold-{self._folds}" / "rows"
        fold = FoldFiles(
            session=lambda: cast("Any", None),
            events=files,
            events_at_most=sum(map(len, rows)),
            view=self.files,
        )
        counts, replaced = fold.write(out)
        kept = tuple(file for file in self.files if file not in replaced)
        written = [(str(file), pq.read_metadata(file).num_rows) for file in out.iterdir()]
        self.files = kept + tuple(ViewFile(path=path, rows=rows) for path, rows in written if rows)
        return counts, {file.path for file in replaced}

    def rows(self) -> pa.Table:
        pieces = [piece for file in self.files for piece in file.read()]
        return pa.concat_tables([view_schema().empty_table(), *pieces])


def _work_here(spark: Any, tasks: Any, work: Any, schema: str) -> list[dict[str, Any]]:
    """What workers do, in this process; the rows are such as Spark would take."""
    rows = [row for task in tasks for batch in work(task) for row in batch.to_pylist()]
    assert all(list(row) == [field.split()[0] for field in schema.split(", ")] for row in rows)
    return rows


def _parts_here(*args: Any, parts: int, schema: str, is_little: bool) -> list[dict[str, Any]]:
    """What Spark would do with the parts, in this process."""
    rows = figures_by_part(*args, parts=parts, schema=schema, is_little=True)
    assert all(list(row) == [field.split()[0] for field in schema.split(", ")] for row in rows)
    return rows


def _in_pieces(rows: list[Any], size: int) -> Iterator[list[Any]]:
    return (rows[begin : begin + size] for begin in range(0, len(rows), size))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    st.lists(events(), max_size=4),
    st.sampled_from([1, 3, 100]),
    st.sampled_from([1, 3, 100]),
    st.sampled_from([0, 100]),
    st.sampled_from([2, 100]),
)
def test_files_have_each_order_once_however_they_are_cut(
    tmp_path_factory, batches, large, part, looked_for, here
):
    view, seen = View(tmp_path_factory.mktemp("view")), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_files, "ROWS_PER_FILE", large)
        patch.setattr(fold_files, "ROWS_PER_PART", part)
        patch.setattr(fold_files, "MAX_EVENTS_LOOKED_FOR", looked_for)
        patch.setattr(fold_files, "MAX_ROWS_IN_PROCESS", here)
        patch.setattr(fold_files, "figures_of", _work_here)
        patch.setattr(fold_files, "figures_by_part", _parts_here)
        for number, batch in enumerate(batches):
            offset = 100 * number
            rows = [
                event
                | {
                    "event_id": f"{number}-{event['event_id']}",
                    "normalized_offset": offset + event["normalized_offset"],
                }
                for event in batch
            ]
            before = folded(seen)
            seen += rows
            counts, _ = view.fold(list(_in_pieces(rows, 4)))
            after = folded(seen)
            assert by_key(view.rows()) == after
            assert counts == Counts(
                read=len(folded(rows)),
                inserted=len(after.keys() - before.keys()),
                updated=sum(after[key] != before[key] for key in before),
            )


def event(order: str, offset: int) -> dict[str, Any]:
    return {
        "tenant_id": "a",
        "order_id": order,
        "event_id": f"event-{offset}",
        "event_type": "ItemShipped",
        "order_status": "shipped",
        "amount": None,
        "currency": None,
        "customer_id": None,
        "occurred_at": AT,
        "normalized_offset": offset,
        "committed_at": AT,
    }


def test_only_files_with_an_order_of_the_events_are_touched(tmp_path, monkeypatch):
    monkeypatch.setattr(order_files, "ROWS_PER_FILE", 3)
    view = View(tmp_path)
    view.fold([[event(order, number) for number, order in enumerate("abc")]])
    (large,) = view.files
    assert view.fold([[event("d", 3)]])[1] == set()
    small = next(file for file in view.files if file != large)
    # Of a large file the others stay by themselves, small ones go together with what is new.
    assert view.fold([[event("b", 4), event("d", 5)]])[1] == {large.path, small.path}
    orders = sorted(
        sorted(rows.column("order_id").to_pylist()) for file in view.files for rows in file.read()
    )
    assert orders == [["a", "c"], ["b", "d"]]


@pytest.mark.parametrize("part", [1, 100])
def test_events_that_the_view_has_change_no_file(tmp_path, monkeypatch, part):
    monkeypatch.setattr(fold_files, "ROWS_PER_PART", part)
    view = View(tmp_path)
    rows = [event(order, number) for number, order in enumerate("abc")]
    view.fold([rows])
    files = view.files
    assert view.fold([rows, rows[:1]]) == (Counts(read=3), set())
    assert view.files == files


def test_an_order_of_another_tenant_with_the_same_id_is_not_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(order_files, "ROWS_PER_FILE", 1)
    view = View(tmp_path)
    view.fold([[event("1", 1) | {"tenant_id": tenant} for tenant in "abc"]])
    before = view.files
    assert view.fold([[event("1", 2) | {"tenant_id": "d"}]]) == (Counts(read=1, inserted=1), set())
    assert set(before) < set(view.files)


def test_many_rows_that_stay_are_written_by_workers(tmp_path, monkeypatch):
    view = View(tmp_path)
    view.fold([[event(order, number) for number, order in enumerate("abcdef")]])
    monkeypatch.setattr(order_files, "ROWS_PER_FILE", 2)
    monkeypatch.setattr(fold_files, "MAX_ROWS_IN_PROCESS", 5)
    shared: list[tuple[int, bool]] = []

    def work(session: Any, tasks: Any, *args: Any, is_little: bool, **more: Any) -> list[dict[str, Any]]:
        shared.append((len(tasks), is_little))
        return _parts_here(session, tasks, *args, is_little=is_little, **more)

    monkeypatch.setattr(fold_files, "figures_of", _work_here)
    monkeypatch.setattr(fold_files, "figures_by_part", work)
    view.fold([[event("a", 7)]])
    assert shared == [(2, False)]  # the file and the events
    assert len(by_key(view.rows())) == 6


def test_a_file_that_is_older_than_a_column_has_no_values_of_it(tmp_path):
    view = View(tmp_path)
    view.fold([[event("a", 1), event("b", 2)]])
    (file,) = view.files
    pq.write_table(pq.read_table(file.path).drop_columns(["customer_id", "paid_at"]), file.path)
    view.fold([[event("a", 3)]])
    assert by_key(view.rows()) == folded([event("a", 1), event("b", 2), event("a", 3)])


def test_bounds_leave_a_file_out(tmp_path):
    view = View(tmp_path)
    view.fold([[event("m", 1)]])
    (file,) = view.files
    Path(file.path).write_bytes(b"not to be read")
    view.files = (ViewFile(path=file.path, rows=1, lowest="m", highest="m"),)
    assert view.fold([[event("n", 2)], [event("p", 3)]])[0].inserted == 2
    assert view.fold([[event("a", 4), event("b", 5)]])[0].inserted == 2
