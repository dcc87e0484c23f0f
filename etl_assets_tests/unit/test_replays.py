"""Dead letters that were handed in are in every domain, and are laid out as the same files wherever they are
read.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
from pathlib import Path

import pytest

from etl_assets.contracts.tables import REPLAYS
from etl_assets.delta.table import Table
from etl_assets.delta.write import records
from etl_assets.placement.domains import FailureDomain
from etl_assets.sources.replays import (
    INGEST,
    NORMALIZE,
    event_again,
    record_again,
    replayed_events,
    replays_folder,
    submit_replays,
)
from etl_assets_tests.pipeline import DAY, NEXT_DAY
from etl_assets_tests.reference.tables import local_domain
from etl_assets_tests.reference.three_domains import A, B, C, root_of, three_domains

LETTER, OTHER = "a" * 64, "b" * 64
NOON = dt.datetime(2026, 3, 1, 12, 0, 0, 123_456, dt.UTC)


@pytest.fixture
def domain(tmp_path: Path) -> FailureDomain:
    return local_domain(tmp_path / "data")


def files(domain: FailureDomain, stage: str = INGEST) -> dict[str, tuple[bytes, int]]:
    folder = replays_folder(domain, stage)
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*.jsonl")
    }


def version(domain: FailureDomain) -> int:
    return Table(name=REPLAYS.name, domain=domain, contract=REPLAYS).version()


def test_what_was_handed_in_outlives_the_domain_it_was_handed_in_to(three):
    first, second = three
    submit_replays(first, [record_again(DAY, LETTER, 2, b"\xff")], now=NOON)
    submit_replays(first, [event_again(NEXT_DAY, OTHER, 3, "e", b'{"b": 1, "a": 2}')], now=NOON)
    before = files(first)
    shutil.rmtree(first.root)
    assert files(second) == before
    assert before == {f"{DAY}/{LETTER}.2.jsonl": (b"\xff\n", 1_772_366_400_123_456_000)}
    (event,) = replayed_events(second, [NEXT_DAY])
    assert (event.event_id, event.payload) == ("e", '{"a":2,"b":1}')
    submit_replays(second, [record_again(DAY, OTHER, 2, b"more")])
    assert len(files(second)) == 2


@pytest.fixture
def three(tmp_path) -> tuple[FailureDomain, FailureDomain]:
    (tmp_path / "home").mkdir()
    placement = three_domains(tmp_path / "home")
    first, second = placement.named(A), placement.named(B)
    assert first is not None
    assert second is not None
    assert root_of(placement, C).exists()
    return first, second


def test_letters_handed_in_together_are_one_commit_and_twice_is_once(domain):
    replays = [record_again(DAY, LETTER, 2, b"x"), event_again(NEXT_DAY, OTHER, 2, "e", None)]
    submit_replays(domain, replays)
    before = files(domain)
    submit_replays(domain, replays)
    assert version(domain) == 1
    assert files(domain) == before


def test_of_one_attempt_the_last_correction_counts(domain):
    for number, record in enumerate((b"first", b"second", b"first")):
        now = NOON + dt.timedelta(seconds=number)
        submit_replays(domain, [record_again(DAY, LETTER, 2, record)], now=now)
    ((content, mtime_ns),) = files(domain).values()
    assert (content, mtime_ns) == (b"first\n", 1_772_366_402_123_456_000)


def test_files_that_were_lost_or_changed_are_laid_out_again_with_the_next_commit(domain):
    submit_replays(domain, [record_again(DAY, LETTER, 2, b"x"), record_again(DAY, OTHER, 2, b"y")])
    before = files(domain)
    (replays_folder(domain, INGEST) / f"{DAY}" / f"{LETTER}.2.jsonl").unlink()
    (replays_folder(domain, INGEST) / f"{DAY}" / f"{OTHER}.2.jsonl").write_bytes(b"edited")
    submit_replays(domain, [event_again(DAY, LETTER, 3, "e", None)])
    assert files(domain) == before


def test_nothing_is_looked_at_again_while_the_table_stays_as_it_is(domain, monkeypatch):
    submit_replays(domain, [record_again(DAY, LETTER, 2, b"x")])
    monkeypatch.setattr(Table, "snapshot", None)
    assert len(files(domain)) == 1


def test_a_table_made_anew_is_laid_out(domain):
    submit_replays(domain, [record_again(DAY, LETTER, 2, b"x")])
    shutil.rmtree(domain.root / "tables")
    submit_replays(domain, [record_again(DAY, LETTER, 2, b"y")])
    assert [content for content, _ in files(domain).values()] == [b"y\n"]


def test_without_a_replay_there_is_no_table(domain):
    submit_replays(domain, [])
    assert files(domain, NORMALIZE) == {}
    assert not domain.root.exists()


def test_every_so_many_commits_the_log_gets_a_checkpoint_and_what_is_old_goes(domain, monkeypatch):
    monkeypatch.setattr(records, "CHECKPOINT_EVERY", 3)
    log = Table(name=REPLAYS.name, domain=domain, contract=REPLAYS).path / "_delta_log"
    for attempt in range(2, 9):
        submit_replays(domain, [record_again(DAY, LETTER, attempt, b"x")])
        for entry in log.iterdir():
            os.utime(entry, (0, 0))
    assert sorted(file.name.lstrip("0") for file in log.iterdir()) == [
        "6.checkpoint.parquet",
        "6.json",
        "7.json",
        "_last_checkpoint",
    ]
    assert len(files(domain)) == 7
