"""A data file that is damaged on disk: steps without Spark name the table, the file and the fix, and no step
blames its target. Looks at the platform's own tables do the same.
"""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from etl_assets.error_policy import Decision, decide
from etl_assets.errors import FilesGone
from etl_assets.observability.rows import find_rows
from etl_assets.sinks.replay_requests import content_of_request
from etl_assets.sources.replays import row_again, submit_replays
from etl_assets.steps.step import (
    ReadMode,
    StepArguments,
    StepContext,
    StepReport,
    platform_table,
    step_of,
)
from etl_assets_tests.sinks.webhook_lab import WebhookLab

TARGETS = {
    "duckdb": (
        {"type": "duckdb", "path": "out/films.duckdb", "write": ["films"]},
        {"type": "duckdb", "table": "films"},
    ),
    "folder": ({"type": "folder", "path": "out", "write": ["films"]}, {"type": "folder", "target": "films"}),
}
PLAIN = {
    "source": {"type": "files", "path": "landing/*.jsonl", "id": ["film_id"], "settle_seconds": 0},
    "columns": {"film_id": "bigint", "title": "string"},
    "table": {"keys": ["film_id"]},
    "sinks": [],
}
"""A declaration whose records need no Spark."""


DAY = dt.date(2026, 3, 1)


def flip(content: bytes) -> bytes:
    """Change bytes of the first page. The footer is whole."""
    return content[:8] + bytes(each ^ 0xFF for each in content[8:40]) + content[40:]


def cut(content: bytes) -> bytes:
    return content[:-100]


@pytest.fixture(params=[cut, flip])
def damage(request) -> Callable[[Path], Path]:
    def damaged(table: Path) -> Path:
        file = max(table.rglob("*.parquet"), key=lambda each: each.stat().st_mtime_ns)
        content = file.read_bytes()
        file.unlink()  # A replica may be a hard link to the same file.
        file.write_bytes(request.param(content))
        return file

    return damaged


def installation(home: Path, sinks: list[dict[str, Any]] | None = None, **settings: Any) -> WebhookLab:
    lab = WebhookLab(home, "http://127.0.0.1:9")
    (home / "out").mkdir()
    change(home / "platform.yaml", **settings)
    pipeline = home / "pipelines" / "films.yaml"
    if sinks is None:
        change(pipeline, **PLAIN)
    else:
        change(pipeline, sinks=sinks)
    return lab


def change(file: Path, **fields: Any) -> None:
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **fields}))


def run(lab: WebhookLab, step: str) -> StepReport:
    context = StepContext(session=_no_spark, domain=lab.settings.placement().domains[0])
    arguments = StepArguments(settings=lab.settings, context=context, mode=ReadMode.INCREMENTAL)
    return step_of(step, arguments).run([dt.datetime.now(dt.UTC).date()])


def _no_spark() -> Any:
    raise AssertionError("these steps run in this process")


@pytest.mark.parametrize("target", TARGETS)
def test_a_delivery_names_the_damaged_file_and_not_its_target_and_goes_on_once_it_is_restored(
    tmp_path, target, damage
):
    connection, sink = TARGETS[target]
    lab = installation(
        tmp_path / "home", [{**sink, "connection": "target"}], connections={"target": connection}
    )
    lab.write([(1, "Alien"), (2, "Brazil")])
    table = lab.table().path
    backup = shutil.copytree(table, tmp_path / "backup")
    file = damage(table)
    with pytest.raises(FilesGone, match=r"a file of the table films, is gone or damaged") as lost:
        run(lab, f"films_to_{target}")
    assert str(file) in lost.value.message
    assert "restore it from a backup" in lost.value.fix
    assert decide(lost.value) is Decision.STOP
    shutil.copy(backup / file.relative_to(table), file)
    assert run(lab, f"films_to_{target}").total()["written"] == 2


def test_a_delivery_names_the_damaged_file_of_the_tombstones(tmp_path, damage):
    connection, sink = TARGETS["folder"]
    lab = installation(
        tmp_path / "home", [{**sink, "connection": "target"}], connections={"target": connection}
    )
    lab.write([(1, "Alien"), (2, "Brazil")])
    run(lab, "films_to_folder")
    lab.delete([1])
    file = damage(lab.table("films_tombstones").path)
    with pytest.raises(FilesGone, match="of the table films_tombstones, is gone or damaged") as lost:
        run(lab, "films_to_folder")
    assert str(file) in lost.value.message


@pytest.mark.parametrize("damaged", ["films_to_folder", "replays"])
def test_a_delivery_names_the_damaged_file_of_its_record_and_of_the_replays(tmp_path, damaged, damage):
    connection, sink = TARGETS["folder"]
    lab = installation(
        tmp_path / "home", [{**sink, "connection": "target"}], connections={"target": connection}
    )
    lab.write([(1, "Alien")])
    run(lab, "films_to_folder")
    domain = lab.settings.placement().domains[0]
    content = content_of_request({"film_id": 1}, dt.datetime.now(dt.UTC), "anna")
    submit_replays(domain, [row_again(DAY, "0" * 64, 2, content, stage="films_to_folder")])
    file = damage(lab.table(damaged).path)
    with pytest.raises(FilesGone, match=f"a file of the table {damaged}, is gone or damaged") as lost:
        run(lab, "films_to_folder")
    assert str(file) in lost.value.message


def test_a_look_at_dead_letters_names_their_damaged_file(tmp_path, damage):
    lab = installation(tmp_path / "home")
    domain = lab.settings.placement().domains[0]
    content = content_of_request({"film_id": 1}, dt.datetime.now(dt.UTC), "anna")
    submit_replays(domain, [row_again(DAY, "0" * 64, 2, content, stage="films_to_folder")])
    table = platform_table("replays", domain)
    file = damage(table.path)
    with pytest.raises(FilesGone, match="a file of the table replays, is gone or damaged") as lost:
        list(find_rows(table, columns=["dead_letter_id", "content"]))
    assert str(file) in lost.value.message


@pytest.mark.parametrize("damaged", ["films_source", "films"])
def test_a_load_in_this_process_names_the_damaged_file_and_its_table(tmp_path, damaged, damage):
    lab = installation(tmp_path / "home")
    (lab.home / "landing" / "a.jsonl").write_text('{"film_id": 1}\n{"film_id": 5}\n')
    run(lab, "films_source")
    run(lab, "films")
    # Between stored keys: the load reads the table's file, to see whether it has this one.
    (lab.home / "landing" / "b.jsonl").write_text('{"film_id": 3}\n')
    run(lab, "films_source")
    file = damage(lab.table(damaged).path)
    with pytest.raises(FilesGone, match=f"a file of the table {damaged}, is gone or damaged") as lost:
        run(lab, "films")
    assert str(file) in lost.value.message
