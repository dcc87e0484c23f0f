"""Changes that this process applies by itself: rows and tombstones are those of a model, in every layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from etl_assets.errors import CommitConflict
from etl_assets.steps.known_tombstones import KnownTombstones
from etl_assets.steps.step import ReadMode
from etl_assets_tests.reference.changes import Change, table_of, tombstones_of
from etl_assets_tests.reference.declared_pipeline import CHANGES, Declared, declared, delete, truncate, upsert
from etl_assets_tests.reference.drawn_changes import LAYOUTS, batches, changes_in


def no_spark() -> NoReturn:
    raise AssertionError("a session was asked for")


def pipeline_in(root: Path, **declaration: Any) -> Declared:
    return Declared(root=root, session=no_spark, spec=declared(**{**CHANGES, **declaration}))


def kept(pipeline: Declared) -> dict[Any, Any]:
    rows = pipeline.rows("people_tombstones")
    found = {None if row["_is_truncate"] else row["id"]: (row["changed_at"], row["_offset"]) for row in rows}
    assert len(found) == len(rows), "one tombstone of each key"
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
@given(drawn=batches(keys=8, sizes=(10, 25), number=3))
def test_rows_and_tombstones_are_those_of_the_model(tmp_path_factory, layout, drawn):
    pipeline = pipeline_in(tmp_path_factory.mktemp("changes") / "data", **changes_in(layout))
    changes: list[Change] = []
    offset = 0
    for number, batch in enumerate(drawn):
        batch = [each for each in batch if not isinstance(each["changed_at"], str)]  # Spark takes these
        if not batch:
            continue
        pipeline.accept(batch)
        before = {row["id"] for row in pipeline.rows()}
        for record in batch:
            value = {name: record.get(name) for name in ("age", "city", "seen_at")}
            place = (record["changed_at"], offset)
            changes.append(Change(kind=record["op"], key=record.get("id"), place=place, value=value))
            offset += 1
        report = pipeline.load(ReadMode.WHOLE if number == 2 else ReadMode.INCREMENTAL)
        wanted = table_of(changes)
        rows = {row["id"]: row for row in pipeline.rows()}
        assert len(rows) == len(pipeline.rows())
        assert {
            key: (row["age"], row["city"], (row["changed_at"], row["_offset"])) for key, row in rows.items()
        } == {key: (each.value["age"], each.value["city"], each.place) for key, each in wanted.items()}
        assert kept(pipeline) == tombstones_of(changes)
        total = report.total()
        assert total["inserted"] - total["deleted"] == len(rows) - len(before)
        assert total["ignored"] >= 0
        if layout == "by an hour":
            hours = {key: (each.value["seen_at"] or "")[:13] or None for key, each in wanted.items()}
            assert {key: row["seen_at_hour"] for key, row in rows.items()} == hours


def test_a_stored_row_that_nothing_removes_stays_in_its_file(tmp_path):
    pipeline = pipeline_in(tmp_path / "data")

    def stored() -> set[str]:
        snapshot = pipeline.context.table("people").snapshot()
        assert snapshot is not None
        return {*snapshot.files()}

    for key in "abc":
        pipeline.accept([upsert(key, 1)])
        pipeline.load()
    files = stored()
    pipeline.accept([delete("b", 2), delete("c", 0), delete("x", 5)])
    assert pipeline.load().total()["deleted"] == 1
    assert len(files - stored()) == 1
    assert {row["id"] for row in pipeline.rows()} == {"a", "c"}


def test_tombstones_of_another_run_are_a_conflict_and_no_row_is_deleted(tmp_path, monkeypatch):
    pipeline = pipeline_in(tmp_path / "data")
    pipeline.accept([upsert("a", 1), upsert("b", 1), delete("c", 1)])
    pipeline.load()
    pipeline.accept([delete("a", 3)])
    among = KnownTombstones.among

    def overtaken(self, keys):
        monkeypatch.undo()
        found = among(self, keys)
        pipeline.load()
        return found

    monkeypatch.setattr(KnownTombstones, "among", overtaken)
    with pytest.raises(CommitConflict, match="people_tombstones"):
        pipeline.load()
    assert ({row["id"] for row in pipeline.rows()}, kept(pipeline)) == ({"b"}, {"a": (3, 3), "c": (1, 2)})
    assert pipeline.load().commits == 0


def test_more_tombstones_than_this_process_compares_are_left_to_spark(tmp_path, monkeypatch):
    pipeline = pipeline_in(tmp_path / "data")
    pipeline.accept([upsert("a", 1), delete("c", 1)])
    pipeline.load()
    pipeline.accept([upsert("c", 0), truncate(0)])
    monkeypatch.setattr("etl_assets.steps.known_tombstones.is_little_work", lambda rows: False)
    version = pipeline.context.table("people_tombstones").version()
    with pytest.raises(AssertionError, match="a session was asked for"):
        pipeline.load()
    assert pipeline.context.table("people_tombstones").version() == version, "nothing was written before"


def test_late_changes_by_stored_tombstones_and_truncates(tmp_path):
    pipeline = pipeline_in(tmp_path / "data")

    def load(*records: dict[str, Any]) -> dict[str, int]:
        pipeline.accept(records)
        pipeline.load()
        return {row["id"]: row["changed_at"] for row in pipeline.rows()}

    assert load(upsert("a", 1), upsert("b", 9), delete("d", 5), truncate(3)) == {"b": 9}
    assert load(upsert("d", 4), upsert("e", 2), upsert("a", 4), upsert("c", 7)) == {"a": 4, "b": 9, "c": 7}
    assert load(delete("b", 8), delete("c", 7)) == {"a": 4, "b": 9}, "as new deletes, older does not"
    assert load(upsert("e", 2), upsert("d", 5)) == {"a": 4, "b": 9, "d": 5}
    assert load(truncate(1), upsert("f", 2)) == {"a": 4, "b": 9, "d": 5}, "the newer truncate counts"
    assert kept(pipeline) == {"b": (8, 8), "c": (7, 9), "d": (5, 2), None: (3, 3)}


def test_a_stored_truncate_counts_for_keys_beyond_those_of_its_file(tmp_path):
    pipeline = pipeline_in(tmp_path / "data")
    pipeline.accept([delete("m", 1), truncate(9)])
    pipeline.load()
    pipeline.accept([upsert("a", 5), upsert("b", 10)])
    pipeline.load()
    assert [row["id"] for row in pipeline.rows()] == ["b"]


@pytest.mark.parametrize(
    ("condition", "deleted"),
    [
        ("city is null", {"a"}),
        ("city IS NOT NULL", {"b", "c"}),
        ("(op = 'D') OR city = 'x'", {"b"}),
        ("(seen_at is not null) OR (city is null) OR op = 'D'", {"a", "c"}),
    ],
)
def test_conditions_of_deletes_that_this_process_knows(tmp_path, condition, deleted):
    declaration = changes_in("not laid out")
    declaration["table"] |= {"apply_as_deletes": condition}
    pipeline = pipeline_in(tmp_path / "data", **declaration)
    seen = "2026-02-01T00:00:00Z"
    pipeline.accept(
        [
            {**upsert("a", 1), "city": None, "seen_at": None},
            {**upsert("b", 1), "city": "x", "seen_at": None},
            {**upsert("c", 1), "city": "y", "seen_at": seen},
        ]
    )
    pipeline.load()
    assert {row["id"] for row in pipeline.rows()} == {"a", "b", "c"} - deleted
