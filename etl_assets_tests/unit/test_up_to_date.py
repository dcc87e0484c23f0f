"""A worker that asks again and again what each table lacks notices every change, and reads only changes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import shutil

import pytest

from etl_assets.delta.write.records import commit_rows
from etl_assets.observability import days_behind as module
from etl_assets.observability.days_behind import UpToDate, days_behind
from etl_assets.settings import load_settings
from etl_assets.sources.batch_plan import BatchPlan
from etl_assets.sources.source_files import SourceFile
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.written_tables import write_table

DAY, OTHER_DAY = dt.date(2026, 1, 5), dt.date(2026, 1, 6)


class Asked:
    """Asks like a worker, and says which tables it had to read for it."""

    def __init__(self, monkeypatch):
        self.settings, self.known, self.read = load_settings(), UpToDate(), []
        self.domain = self.settings.placement().reader()
        self.first_day = self.settings.start_date
        among = module._behind_among

        def noting(stages, *rest):
            self.read = [each.name for each in stages]
            return among(stages, *rest)

        monkeypatch.setattr(module, "_behind_among", noting)

    def write(self, table, day, batch, cursors=None):
        write_table(self.domain, table, [{"partition_date": day, "batch_id": batch}], cursors)

    def behind(self):
        """Ask with what is known, and expect the answer that someone who knows nothing gets."""
        found = days_behind(self.domain, self.first_day, known=self.known)
        read = self.read
        assert found == days_behind(self.domain, self.first_day)
        self.read = read
        return found


@pytest.fixture
def asked(monkeypatch):
    return Asked(monkeypatch)


def carry_through(asked: Asked, day: dt.date, batch: int) -> None:
    asked.write("raw_events", day, batch)
    asked.write("normalized_orders", day, batch, {f"raw_events/{day}": batch})
    asked.write("warehouse_rows", day, batch, {f"normalized_orders/{day}": batch})
    asked.write("order_status_view", day, batch, {"warehouse_rows/*": batch})
    inputs = ("raw_events", "normalized_orders", "warehouse_rows")
    asked.write("audit_log", day, batch, {f"{name}/{day}": batch for name in inputs})


def test_nothing_is_read_again_while_nothing_changes(asked):
    carry_through(asked, DAY, 0)
    assert asked.behind() == {}
    assert "warehouse_rows" in asked.read
    assert asked.behind() == {}
    assert asked.read == []


def test_a_table_that_is_behind_is_found_each_time_until_it_is_not(asked):
    carry_through(asked, DAY, 0)
    asked.behind()
    asked.write("raw_events", OTHER_DAY, 1)
    for _ in range(2):
        assert asked.behind() == {"normalized_orders": (OTHER_DAY,), "audit_log": (OTHER_DAY,)}
        assert "warehouse_rows" not in asked.read
    carry_through(asked, OTHER_DAY, 1)
    asked.behind()
    asked.behind()
    assert set(asked.read) <= {"normalized_orders", "audit_log"}


def test_rejects_count_once_their_source_has_the_batch_though_their_table_is_the_same(asked):
    file = SourceFile(day=DAY, source="landing", name="a.jsonl", size=1, mtime_ns=1)
    facts = BatchPlan(batch_id=1, files=(file,)).facts()
    rejects = platform_table("raw_events_exceptions", asked.domain)
    assert asked.behind() == {}
    commit_rows(rejects, [], base_version=-1, facts=facts)
    asked.write("raw_events_exceptions", DAY, 2)
    for _ in range(2):
        assert asked.behind() == {"raw_events": (DAY,)}
    write_table(asked.domain, "raw_events", [], {"files": 1})
    for _ in range(2):
        assert asked.behind() == {"dead_letters": (DAY,), "audit_log": (DAY,)}


def test_a_reader_of_rejects_alone_depends_on_the_table_of_their_source(asked):
    (letters,) = (each for each in asked.domain.catalog.stages if each.name == "dead_letters")
    reader = dataclasses.replace(letters, inputs=("raw_events_exceptions",))
    bases = asked.known.bases([reader], asked.domain, DAY)
    asked.known.add(bases)
    assert asked.known.has(reader.name, bases[reader.name])
    write_table(asked.domain, "raw_events", [], {"files": 1})
    assert not asked.known.has(reader.name, asked.known.bases([reader], asked.domain, DAY)[reader.name])


def test_a_table_that_is_created_again_with_the_same_version_is_another_one(asked):
    carry_through(asked, DAY, 0)
    assert asked.behind() == {}
    for name in ("raw_events", "normalized_orders"):
        table = platform_table(name, asked.domain)
        before = table.identity()
        shutil.rmtree(table.path)
        asked.write(name, OTHER_DAY, 0)
        assert table.identity() != before
    assert OTHER_DAY in asked.behind()["normalized_orders"]


def test_another_first_day_and_another_declaration_are_asked_again(asked):
    asked.write("raw_events", DAY - dt.timedelta(days=60), 0)
    asked.first_day = DAY
    assert asked.behind() == {}
    asked.first_day = DAY - dt.timedelta(days=90)
    assert "normalized_orders" in asked.behind()
    carry_through(asked, DAY, 0)
    asked.first_day = DAY
    asked.behind()
    asked.behind()
    assert asked.read == []
    stage = asked.domain.catalog.stages[0]
    bases = asked.known.bases([dataclasses.replace(stage)], asked.domain, DAY)
    assert not asked.known.has(stage.name, bases[stage.name])


def test_an_entry_that_is_cleaned_up_while_it_is_looked_at_is_no_answer(asked, monkeypatch):
    carry_through(asked, DAY, 0)
    monkeypatch.setattr("etl_assets.delta.table.entry_identity", lambda *_: None)
    assert asked.behind() == {}
    assert asked.behind() == {}
    assert "normalized_orders" in asked.read
