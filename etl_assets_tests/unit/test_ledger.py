"""What has been read is known after every end a run can have and in every domain, and never believed too
early.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from etl_assets.delta.log import entries as log
from etl_assets.delta.log.entries import entry_path
from etl_assets.ingest import step as ingest
from etl_assets.ingest.step import batches_of
from etl_assets.sources import ledger as ledgers
from etl_assets.sources.batch_plan import BatchPlan, plan_of
from etl_assets.sources.landing import LANDING, REPLAYS
from etl_assets.sources.source_files import SourceFile
from etl_assets_tests.pipeline import DAY, NEXT_DAY
from etl_assets_tests.reference.read_files import ReadFiles


def file(name: str = "a.jsonl", **fields) -> SourceFile:
    return replace(SourceFile(day=DAY, source=LANDING, name=name, size=10, mtime_ns=1), **fields)


@pytest.fixture
def read(tmp_path: Path) -> ReadFiles:
    return ReadFiles(tmp_path)


def test_a_file_is_unread_until_a_commit_names_it(read):
    assert read.ledger().unread([file()]) == (file(),)
    read.commit(file())
    assert read.ledger().unread([file(), file("b.jsonl")]) == (file("b.jsonl"),)


def test_another_domain_knows_from_the_log_alone_what_was_read(read, tmp_path):
    for name in "abc":
        read.commit(file(f"{name}.jsonl"))
        read.ledger().keep()
    elsewhere = read.ledger(tmp_path / "elsewhere")
    assert elsewhere.unread([file("a.jsonl"), file("c.jsonl"), file("d.jsonl")]) == (file("d.jsonl"),)
    elsewhere.keep()
    kept = {path.name: path.read_bytes() for path in (tmp_path / "elsewhere").iterdir()}
    assert kept == {path.name: path.read_bytes() for path in read.days.iterdir()}


def test_commits_that_the_days_have_are_not_looked_at_again(read, monkeypatch):
    for number in range(20):
        read.commit(file(f"{number}.jsonl"))
    read.ledger().keep()
    read.commit(file("last.jsonl"))
    seen: list[int] = []
    notes = log.commit_notes

    def counting(path, newest):
        for note in notes(path, newest):
            seen.append(note.version)
            yield note

    monkeypatch.setattr(ledgers, "commit_notes", counting)
    assert read.ledger().unread([file("0.jsonl"), file("last.jsonl")]) == ()
    assert seen == [20, 19]


def test_what_was_kept_outlasts_the_log_entries_it_came_from(read):
    read.commit(file("a.jsonl"))
    read.ledger().keep()
    read.commit(file("b.jsonl"))
    read.ledger().keep()
    entry_path(read.table, 0).unlink()
    read.commit(file("c.jsonl"))
    assert read.ledger().unread([file(f"{name}.jsonl") for name in "abc"]) == ()


def test_of_a_log_shortened_beyond_what_was_kept_only_what_nobody_remembers_is_read_again(read):
    read.commit(file("a.jsonl"))
    read.ledger().keep()
    read.commit(file("b.jsonl"))
    read.commit(file("c.jsonl"))
    read.clean_up(before=2)
    for _ in range(2):
        assert read.ledger().unread([file(f"{name}.jsonl") for name in "abc"]) == (file("b.jsonl"),)
        read.ledger().keep()
    read.commit(file("b.jsonl"))
    assert read.ledger().unread([file(f"{name}.jsonl") for name in "abc"]) == ()


def test_of_an_earlier_table_nothing_is_believed_however_short_the_log_is(read):
    read.commit(file("a.jsonl"))
    read.ledger().keep()
    shutil.rmtree(read.table)
    read.table_id = "another"
    for name in "bcd":
        read.commit(file(f"{name}.jsonl"))
    read.clean_up(before=2)
    assert read.ledger().unread([file("a.jsonl"), file("d.jsonl")]) == (file("a.jsonl"),)


def test_a_ledger_that_does_not_say_of_which_table_it_is_goes_by_the_commit_alone(read):
    read.commit(file("a.jsonl"))
    read.ledger().keep()
    up_to = read.days / "up_to.json"
    up_to.write_text(json.dumps(json.loads(up_to.read_text())[:3]))
    read.commit(file("b.jsonl"))
    assert read.ledger().unread([file("a.jsonl"), file("b.jsonl")]) == ()
    read.clean_up(before=1)
    assert read.ledger().unread([file("a.jsonl"), file("b.jsonl")]) == (file("a.jsonl"),)
    read.ledger().keep()
    assert json.loads(up_to.read_text())[3:] == [read.table_id]


def test_commits_of_other_kinds_change_nothing(read):
    read.commit(file())
    read.commit(compacted_days=1)
    read.ledger().keep()
    assert read.ledger().unread([file()]) == ()


@pytest.mark.parametrize("change", [{"size": 11}, {"mtime_ns": 2}, {"name": "b.jsonl"}, {"source": REPLAYS}])
@pytest.mark.parametrize("kept", [False, True])
def test_a_file_that_is_not_as_it_was_read_is_unread(read, change, kept):
    read.commit(file())
    if kept:
        read.ledger().keep()
    changed = replace(file(), **change)
    assert read.ledger().unread([changed]) == (changed,)
    is_known_by_name = "size" in change or "mtime_ns" in change
    assert bool(read.ledger().changed([changed])) == is_known_by_name


@pytest.mark.parametrize("kept", [False, True])
def test_a_file_that_was_read_twice_is_known_as_it_was_last(read, kept):
    read.commit(file())
    if kept:
        read.ledger().keep()
    read.commit(file(size=11))
    assert read.ledger().unread([file()]) == (file(),)
    assert read.ledger().unread([file(size=11)]) == ()


@pytest.mark.parametrize("commits", [0, 1, 5])
def test_the_ledger_of_an_earlier_table_counts_for_nothing(read, commits):
    for number in range(2):
        read.commit(file(f"{number}.jsonl"))
    read.commit(file("next.jsonl", day=NEXT_DAY))
    read.ledger().keep()
    shutil.rmtree(read.table)
    for number in range(commits):
        read.commit(file(f"new-{number}.jsonl"))
    for _ in range(2):
        assert read.ledger().unread([file("0.jsonl")]) == (file("0.jsonl"),)
        assert read.ledger().unread([file("next.jsonl", day=NEXT_DAY)]) != ()
        read.ledger().keep()


def test_a_commit_that_a_power_loss_took_back_is_not_believed(read):
    read.commit(file("a.jsonl"))
    read.commit(file("lost.jsonl"))
    read.ledger().keep()
    entry_path(read.table, 1).unlink()
    read.commit(file("b.jsonl"))
    assert read.ledger().unread([file("a.jsonl"), file("b.jsonl")]) == ()
    assert read.ledger().unread([file("lost.jsonl")]) == (file("lost.jsonl"),)


def test_killed_at_any_moment_of_keeping_it_never_tells_more_than_the_log(read, monkeypatch):
    """Each write of one call dies in turn, over days of an earlier table."""

    class Killed(Exception):
        pass

    read.commit(file("gone.jsonl"))
    read.commit(file("gone.jsonl", day=NEXT_DAY))
    read.ledger().keep()
    shutil.rmtree(read.table)
    read.commit(file("a.jsonl"))
    writes = 0

    def dying(real):
        def call(*args):
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            real(*args)

        return call

    real = {name: getattr(ledgers, name) for name in ("write_durably", "write_all_durably", "remove_durably")}
    for writes in range(6):
        left = writes
        for name, function in real.items():
            monkeypatch.setattr(ledgers, name, dying(function))
        try:
            read.ledger().keep()
        except Killed:
            pass
        else:
            break
        assert read.ledger().unread([file("gone.jsonl")]) != ()
        assert read.ledger().unread([file("gone.jsonl", day=NEXT_DAY)]) != ()
        assert read.ledger().unread([file("a.jsonl")]) == ()
    assert writes == 4
    assert sorted(path.name for path in read.days.iterdir()) == [f"{DAY}.json", "up_to.json"]


def test_many_days_are_kept_as_few_are(read):
    days = [DAY + dt.timedelta(days=number) for number in range(50)]
    for day in days:
        read.commit(file(day=day), file("b.jsonl", day=day))
    read.ledger().keep()
    assert len(list(read.days.iterdir())) == 51
    assert [read.ledger().unread([file(day=day)]) for day in days] == [()] * 50


def test_the_days_kept_grow_and_another_day_is_not_touched(read):
    read.commit(file("a.jsonl"))
    read.ledger().keep()
    before = (read.days / f"{DAY}.json").stat()
    read.commit(file("a.jsonl", day=NEXT_DAY))
    read.ledger().keep()
    assert (read.days / f"{DAY}.json").stat().st_mtime_ns == before.st_mtime_ns


def test_a_plan_comes_back_from_what_a_commit_kept_of_it():
    plan = BatchPlan(batch_id=7, files=(file("a.jsonl"), file("b.jsonl", day=NEXT_DAY, source=REPLAYS)))
    assert plan_of(plan.facts()) == plan
    assert plan_of({}) is None


def test_batches_keep_source_order_and_their_limits(monkeypatch):
    files = [file(f"{n}.jsonl", size=size) for n, size in enumerate((4, 4, 4, 100, 1))]
    assert [[f.size for f in batch] for batch in batches_of(reversed(files), 8)] == [[4, 4], [4], [100], [1]]
    assert list(batches_of([], 8)) == []
    monkeypatch.setattr(ingest, "MAX_FILES_PER_BATCH", 2)
    assert [len(batch) for batch in batches_of(files, 1_000)] == [2, 2, 1]
