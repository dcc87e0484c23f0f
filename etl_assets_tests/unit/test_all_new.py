"""What is read is new to warehouse_rows by counts: true of a stream, and never while a row of it is there,
whatever was set back.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etl_assets.delta.log.cursor import cursor_name
from etl_assets.delta.log.entries import entry_path
from etl_assets.delta.table import Table
from etl_assets.delta.write.offsets import next_offset
from etl_assets.errors import FilesGone
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS
from etl_assets.placement.domains import FailureDomain
from etl_assets.steps.changes import Changes, read_changes
from etl_assets.steps.step import ReadMode, platform_table
from etl_assets.undo.plan import plan_days, plan_restore
from etl_assets.undo.undo import Undo
from etl_assets_tests.pipeline import DAY, NEXT_DAY
from etl_assets_tests.reference.tables import local_domain
from etl_assets_tests.reference.written_tables import write_table

DAYS = [DAY, NEXT_DAY]
Deed = tuple[str, int]


def deeds(story: str) -> list[Deed]:
    """Deeds separated by semicolons, each with a number after it or 0."""
    told = (each.strip().rpartition(" ") for each in story.split(";"))
    return [
        (name, int(number)) if number.isdigit() else (f"{name} {number}".strip(), 0)
        for name, _, number in told
    ]


@dataclass(kw_only=True)
class Platform:
    """normalized_orders and warehouse_rows with the logs that they really have; rows are made here instead of
    by Spark.

    The events that came are `arrived`, numbers with their day; of those every second one may be refused by
    what is the code of the moment.
    """

    folder: Path
    arrived: list[tuple[int, int]] = field(default_factory=list)
    refuses: bool = False
    planned: tuple[Changes, int] | None = None

    def __post_init__(self) -> None:
        for table in (self.orders, self.warehouse):
            write_table(self.domain, table.name, [])

    @property
    def domain(self) -> FailureDomain:
        return local_domain(self.folder / "data")

    @property
    def orders(self) -> Table:
        return platform_table(NORMALIZED_ORDERS.name, self.domain)

    @property
    def warehouse(self) -> Table:
        return platform_table(WAREHOUSE_ROWS.name, self.domain)

    def do(self, deed: Deed) -> None:
        name, number = deed
        DEEDS[name](self, number)

    def land(self, day: int) -> None:
        self.arrived.append((len(self.arrived) + 1, day % 2))

    def load_planned(self) -> None:
        """As of two at once the later one: a commit that follows another version than it was planned on is
        refused.
        """
        if self.planned is not None and self.planned[1] == self.warehouse.version():
            self.load(*self.planned)

    def reprocess(self, table: Table, day: int) -> None:
        self.undo(plan_days(self.everywhere, [table.name], [DAYS[day % 2]]))

    def restore(self, table: Table, versions: int) -> None:
        try:
            self.undo(plan_restore(self.everywhere, table.name, max(0, table.version() - versions)))
        except FilesGone:  # its log is that of a backup, and so are its files
            assert self.backup.exists()

    def back_up(self) -> None:
        shutil.rmtree(self.backup, ignore_errors=True)
        shutil.copytree(self.warehouse.path, self.backup)

    def put_back(self) -> None:
        """While nothing else is done, as operators are told."""
        if self.backup.exists():
            self.planned = None
            shutil.rmtree(self.warehouse.path)
            shutil.copytree(self.backup, self.warehouse.path)

    @property
    def backup(self) -> Path:
        return self.folder / "backup"

    def everywhere(self, _table: str) -> FailureDomain:
        return self.domain

    def undo(self, undo: Undo) -> None:
        if undo.tables:
            undo.carry_out()

    def normalize(self) -> None:
        snapshot = self.orders.snapshot()
        assert snapshot is not None
        known = {row["event_id"] for row in rows_of(self.orders)}
        missing = [
            (number, day)
            for number, day in self.arrived
            if str(number) not in known and not (self.refuses and number % 2)
        ]
        if missing:
            rows = [
                {
                    "event_id": str(number),
                    "partition_date": DAYS[day],
                    "offset": offset,
                    "batch_id": snapshot.version + 1,
                }
                for offset, (number, day) in enumerate(missing, start=next_offset(snapshot))
            ]
            write_table(self.domain, self.orders.name, rows)

    def plan(self, mode: ReadMode = ReadMode.INCREMENTAL) -> tuple[Changes, int]:
        seen = self.warehouse.version()
        return read_changes(self.orders, self.warehouse, DAYS, mode), seen

    def load(self, changes: Changes, base: int, *, remembered: bool = True) -> bool:
        """What the step does; whether it found all to be new without a comparison.

        Raises:
            AssertionError: it found all to be new, and some of it is there.
        """
        stands = self.warehouse.snapshot(base)
        assert stands is not None
        if not changes.days:
            return True
        all_new = changes.all_new_to(stands)
        read = [
            row
            for row in rows_of(self.orders, changes.version)
            if row["partition_date"] in changes.days
            and row["batch_id"]
            > (-1 if changes.mode is ReadMode.WHOLE else changes.cursors[row["partition_date"]])
        ]  # fmt: skip
        there = {
            row["event_id"] for row in rows_of(self.warehouse, base) if row["partition_date"] in changes.days
        }
        if all_new:
            assert there.isdisjoint(row["event_id"] for row in read)
        rows = [
            {
                "warehouse_key": row["event_id"],
                "event_id": row["event_id"],
                "partition_date": row["partition_date"],
                "normalized_offset": row["offset"],
                "batch_id": base + 1,
            }
            for row in read
            if row["event_id"] not in there
        ]
        cursors = {cursor_name(self.orders.name, day): changes.version for day in changes.days}
        write_table(self.domain, self.warehouse.name, rows, cursors if remembered else {})
        return all_new


DEEDS: Mapping[str, Callable[[Platform, int], object]] = {
    "land": lambda at, day: at.land(day),
    "refuse every second": lambda at, _: setattr(at, "refuses", True),
    "refuse none": lambda at, _: setattr(at, "refuses", False),
    "normalize": lambda at, _: at.normalize(),
    "load": lambda at, _: at.load(*at.plan()),
    "load the whole": lambda at, _: at.load(*at.plan(ReadMode.WHOLE)),
    "load, and forget the cursor": lambda at, _: at.load(*at.plan(), remembered=False),
    "plan a load": lambda at, _: setattr(at, "planned", at.plan()),
    "load as planned": lambda at, _: at.load_planned(),
    "reprocess": lambda at, day: at.reprocess(at.orders, day),
    "reprocess warehouse": lambda at, day: at.reprocess(at.warehouse, day),
    "restore": lambda at, versions: at.restore(at.orders, versions),
    "restore warehouse": lambda at, versions: at.restore(at.warehouse, versions),
    "back warehouse up": lambda at, _: at.back_up(),
    "put warehouse back": lambda at, _: at.put_back(),
    "compact": lambda at, _: compact(at.orders),
    "compact warehouse": lambda at, _: compact(at.warehouse),
}


def compact(table: Table) -> None:
    DeltaTable(str(table.path)).optimize.compact()


def rows_of(table: Table, version: int | None = None) -> Iterator[dict]:
    found = DeltaTable(str(table.path), version=version).to_pyarrow_dataset().to_table()
    columns = ("event_id", "partition_date", "batch_id", "offset")
    yield from found.select([name for name in columns if name in found.schema.names]).to_pylist()


def after(folder: Path, story: Iterable[Deed]) -> Platform:
    platform = Platform(folder=folder)
    for deed in story:
        platform.do(deed)
    return platform


MADE = "land; normalize; load; land; normalize; load"
OLD_BACKUP = (
    "land; land; normalize; load; back warehouse up; reprocess; normalize; load; put warehouse back;"
    " land; normalize; load; land; normalize; load"
)
BACKUP_LACKS_A_ROW = "land; normalize; back warehouse up; load; put warehouse back; land; normalize; load"
# Event 1 is in the batch that comes back, and was out when the cursor of the backup went by it; event 2 came
# again.
OTHER_ROWS_BROUGHT_BACK = (
    "land; normalize; reprocess; refuse every second; land; normalize; load; back warehouse up; restore 2;"
    " normalize; put warehouse back; load"
)
# Event 1 is in the warehouse only, refused by the code of the moment, and then is accepted again.
ACCEPTED_AGAIN = (
    "land; normalize; load; refuse every second; reprocess; land; normalize; load; restore warehouse 2; load;"
    " refuse none; normalize; load"
)
CURSOR_LOST = "land; normalize; load; land; normalize; load, and forget the cursor; land; normalize; load"
TWO_AT_ONCE = "land; normalize; plan a load; load; load as planned; land; normalize; load"
UNDONE_IN_BETWEEN = (
    "land; normalize; plan a load; reprocess; normalize; load as planned; load; land; normalize; load"
)
COMPACTED_IN_BETWEEN = "land; normalize; load; land; normalize; compact; load; land; normalize; load"


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(sorted(DEEDS)), st.integers(0, 4)), min_size=5, max_size=25))
@example(deeds(OLD_BACKUP))
@example(deeds(BACKUP_LACKS_A_ROW))
@example(deeds(OTHER_ROWS_BROUGHT_BACK))
@example(deeds(ACCEPTED_AGAIN))
@example(deeds(CURSOR_LOST))
@example(deeds(TWO_AT_ONCE))
@example(deeds(UNDONE_IN_BETWEEN))
@example(deeds(COMPACTED_IN_BETWEEN))
def test_nothing_that_is_there_is_taken_for_new_whatever_was_undone_set_back_or_forgotten(story):
    with tempfile.TemporaryDirectory() as folder:
        platform = after(Path(folder), story)
        platform.load(*platform.plan(ReadMode.WHOLE))
        loaded = Counter(row["event_id"] for row in rows_of(platform.warehouse))
        assert set(loaded.values()) <= {1}
        assert {row["event_id"] for row in rows_of(platform.orders)} <= set(loaded)


@pytest.mark.parametrize(
    ("story", "all_new"),
    [
        (MADE, True),
        ("land; normalize; load; compact; compact warehouse", True),
        ("land; normalize; load; reprocess 1", False),  # which rows are of before it is not told by the day
        ("land; normalize; load; reprocess; normalize; load", True),
        ("land; normalize; load; reprocess warehouse; load", True),
        (OLD_BACKUP, True),  # made equal by a comparison
        (ACCEPTED_AGAIN, True),
        ("land; normalize; load; back warehouse up; land; normalize; load; put warehouse back", True),
        (CURSOR_LOST, True),
        ("land; normalize; land; normalize; load, and forget the cursor", False),
    ],
)  # fmt: skip
def test_what_comes_after_is_new_by_counts(tmp_path, story, all_new):
    platform = after(tmp_path, deeds(f"{story}; land; normalize"))
    assert platform.load(*platform.plan()) is all_new


def test_a_file_of_the_table_that_does_not_tell_how_many_rows_it_has_may_have_any(tmp_path):
    platform = after(
        tmp_path,
        deeds("land; normalize; load; land; normalize; load, and forget the cursor; land; normalize"),
    )
    # Left are one row told and one row read up to the cursor, and what follows that has the row that is not
    # told.
    forget_statistics(platform.warehouse, 2)
    assert platform.load(*platform.plan()) is False


def test_rows_of_which_the_log_says_nothing_do_not_count_as_read(tmp_path):
    platform = after(tmp_path, deeds(f"{MADE}; land; normalize"))
    forget_statistics(platform.orders, 1)
    assert platform.load(*platform.plan()) is False


def test_of_a_source_that_was_made_anew_nothing_counts_as_read(tmp_path):
    platform = after(tmp_path, deeds("land 1; normalize; load; land; normalize; load; land; normalize; load"))
    shutil.rmtree(platform.orders.path)
    write_table(platform.domain, platform.orders.name, [])
    for number in (4, 1):
        platform.arrived = [(number, 1)]
        platform.normalize()
    # Its version 1 is another than the one that was read, and as many rows of that day were.
    changes, base = platform.plan()
    assert (changes.recreated, changes.days) == (True, (NEXT_DAY,))
    assert platform.load(changes, base) is False


def forget_statistics(table: Table, version: int) -> None:
    """As after a writer that was told to collect none."""
    entry = entry_path(table.path, version)
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    entry.write_text("\n".join(map(json.dumps, actions)))
