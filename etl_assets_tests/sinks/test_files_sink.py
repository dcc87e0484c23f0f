"""The sink of Parquet files, on a folder and on a real S3-compatible server."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import duckdb
import polars as pl
import pytest

from etl_assets.errors import NotFound, SinkFenced, SinkRefused, SinkUnavailable
from etl_assets.failpoints import Failpoint
from etl_assets.mirroring.stores.opening import open_store
from etl_assets.sinks.files import sink as files_sink
from etl_assets.sinks.files.manifest import newest, numbers
from etl_assets.sinks.files.reader import read_manifest
from etl_assets.sinks.files.retention import remove_old
from etl_assets.sinks.files.sink import FilesSink
from etl_assets_tests.reference.fault_proxy import Fault, FaultProxy
from etl_assets_tests.reference.object_store_server import BUCKET, ObjectStoreServer
from etl_assets_tests.reference.peak_memory import growth
from etl_assets_tests.reference.small_disk import fill, small_disk
from etl_assets_tests.sinks.contract import SinkContract
from etl_assets_tests.sinks.deliveries import CONTRACT, PARTITIONED, at, delivery, film, many


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStoreServer]:
    server = ObjectStoreServer()
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["folder", "s3"])
def root(request, tmp_path, monkeypatch) -> str:
    if request.param == "folder":
        return str(tmp_path)
    request.getfixturevalue("server").addressed(monkeypatch)
    return f"s3://{BUCKET}/{tmp_path.name}"


def sink_of(root: str, *, contract=CONTRACT, **options) -> FilesSink:
    sink = FilesSink(root, "out/films", **options)
    sink.prepare(contract)
    return sink


def counts(root: str) -> dict[str, int]:
    """Read as a program of the user's: the manifest's files, each by another library where it can."""
    dataset = read_manifest(f"{root}/out/films")
    rows: list[tuple[str, int]] = []
    if "://" in root:
        store = open_store(root)
        for file in dataset.manifest.files:
            content = b"".join(store.read(f"out/films/{file.path}") or ())
            rows += pl.read_parquet(content).select("film_id", "count").rows()
    elif dataset.files:
        files = list(dataset.files)
        rows = pl.scan_parquet(files).select("film_id", "count").collect().rows()
        by_duckdb = (
            duckdb.read_parquet(files, hive_partitioning=False).select("film_id", '"count"').fetchall()
        )
        assert sorted(by_duckdb) == sorted(rows)
    assert len(rows) == len(dict(rows)) == dataset.manifest.rows
    return dict(rows)


def script(root: str, body: str, **environ: str) -> Any:  # a process with pipes
    code = f"""
        import os, signal, sys, time
        from etl_assets_tests.sinks.deliveries import *
        from etl_assets.sinks.files.sink import FilesSink
        sink = FilesSink({root!r}, "out/films")
        sink.prepare(CONTRACT)
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code) + textwrap.dedent(body)],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )


def data_files(root: str) -> set[str]:
    return set(open_store(root).list("out/films/data/"))


def test_the_listed_files_are_the_table(root):
    sink = sink_of(root)
    assert sink.position() is None
    with pytest.raises(NotFound):
        read_manifest(f"{root}/out/films")
    done = sink.deliver(delivery(None, at(1), [film("a"), film("b")], whole=True))
    assert (done.written, done.deleted) == (2, 0)
    done = sink.deliver(delivery(at(1), at(2), [film("a", 2), film("c")], ["b", "unknown"]))
    assert (done.written, done.deleted) == (2, 1)
    assert sink.position() == at(2)
    assert counts(root) == {"a": 2, "c": 1}
    done = sink.deliver(delivery(at(2), at(3), [film("c", 9)], whole=True))
    assert (done.written, done.deleted) == (1, 1)
    assert counts(root) == {"c": 9}
    sink.deliver(delivery(at(3), at(4), [], ["c"]))
    assert counts(root) == {}


def test_a_delivery_from_another_position_changes_nothing(root):
    sink = sink_of(root)
    sink.deliver(delivery(None, at(1), [film("a")]))
    before = data_files(root)
    for other in (None, at(0), at(1, "other")):
        with pytest.raises(SinkFenced):
            sink.deliver(delivery(other, at(2), [film("z")]))
    assert data_files(root) == before
    assert counts(root) == {"a": 1}


def test_of_two_writers_one_wins(root):
    first, second = sink_of(root), sink_of(root)
    first.deliver(delivery(None, at(1), [film("a")]))

    def rows():
        second.deliver(delivery(at(1), at(2), [film("b")]))
        yield from delivery(None, at(2), [film("z")]).rows()

    with pytest.raises(SinkFenced):
        first.deliver(dataclasses.replace(delivery(at(1), at(2), []), rows=_once(rows)))
    assert counts(root) == {"a": 1, "b": 1}


def _once(rows):
    """The first call yields nothing: keys are read before rows."""
    calls = []

    def called():
        calls.append(1)
        return rows() if len(calls) == 2 else iter(())

    return called


@pytest.mark.kill
@pytest.mark.parametrize(
    "point", ["sink.during_delivery", "sink.before_target_commit", "sink.after_target_commit"]
)
def test_a_killed_delivery_is_there_once_or_not_at_all(tmp_path, point):
    root = str(tmp_path)
    sink = sink_of(root)
    sink.deliver(delivery(None, at(1), [film("a"), film("b")]))
    body = "sink.deliver(delivery(at(1), at(2), [film('a', 2)], ['b']))"
    killed = script(root, body, ETL_ASSETS_FAILPOINT=point)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    done = point == "sink.after_target_commit"
    assert sink.position() == (at(2) if done else at(1))
    assert counts(root) == ({"a": 2} if done else {"a": 1, "b": 1})
    if not done:
        sink.deliver(delivery(at(1), at(2), [film("a", 2)], ["b"]))
    assert counts(root) == {"a": 2}


def test_a_manifest_whose_answer_is_lost_is_there_once(server, tmp_path, monkeypatch):
    proxy = FaultProxy(server.port, random.Random(1))
    server.addressed(monkeypatch, port=proxy.port)
    root = f"s3://{BUCKET}/{tmp_path.name}"
    sink = sink_of(root)
    sink.deliver(delivery(None, at(1), [film("a"), film("b")]))
    given = delivery(at(1), at(2), [film("a", 2)], ["b"])
    with ExitStack() as network, monkeypatch.context() as patched:
        # The conditional put comes next: it is carried out, and repeated for want of an answer.
        lost = network.enter_context
        patched.setattr(
            files_sink, "failpoint", lambda name, **_: _at_commit(name, lost, proxy.fault(Fault.ANSWERS_LOST))
        )
        with pytest.raises(SinkUnavailable):
            sink.deliver(given)
    again = sink_of(root)
    assert (again.position(), counts(root)) == (at(2), {"a": 2})
    with pytest.raises(SinkFenced):
        again.deliver(given)
    proxy.close()


def _at_commit(name, enter, fault) -> None:
    if name == Failpoint.SINK_BEFORE_TARGET_COMMIT:
        enter(fault)


@pytest.mark.kill
def test_a_writer_that_slept_before_its_manifest_loses_also_after_the_retention(tmp_path):
    """Its number is free again, since the manifest that took it was removed."""
    root = str(tmp_path)
    sink = sink_of(root, retention_hours=0)
    sink.deliver(delivery(None, at(1), [film("a")]))
    late = script(
        root,
        """
        create = sink._store.create
        def paused(key, content):
            print("paused", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
            return create(key, content)
        sink._store.create = paused
        try:
            sink.deliver(delivery(at(1), at(2), [film("late")]))
        except Exception as error:
            print(type(error).__name__, flush=True)
        """,
    )
    try:
        assert late.stdout.readline() == "paused\n"
        for version in (2, 3, 4):
            sink.deliver(delivery(at(version - 1), at(version), [film("a", version)]))
        time.sleep(0.05)
        # The first of these would keep the paused writer's file only as long as its number is not taken.
        sink.remove_old()
        assert numbers(open_store(root), "out/films") == [4]
        late.send_signal(signal.SIGCONT)
        assert late.stdout.readline() == "SinkFenced\n"
        assert late.wait(30) == 0
    finally:
        late.kill()
        late.communicate()
    assert numbers(open_store(root), "out/films") == [4]
    assert counts(root) == {"a": 4}


def test_files_stay_for_the_retention_and_the_current_ones_always(tmp_path):
    root = str(tmp_path)
    sink = sink_of(root)
    for version in range(1, 4):
        sink.deliver(delivery(at(version - 1) if version > 1 else None, at(version), [film("a", version)]))
    store, now = open_store(root), time.time()
    orphan = f"out/films/data/part-{2:020d}-crashed.parquet"
    running = f"out/films/data/part-{4:020d}-running.parquet"
    store.put(orphan, [b"x"])
    store.put(running, [b"x"])
    (tmp_path / "out/films/data/users-own.parquet").write_bytes(b"x")
    assert remove_old(store, "out/films", retention_seconds=3600, now=now) == 1  # the crashed attempt's
    assert len(numbers(store, "out/films")) == 3
    assert remove_old(store, "out/films", retention_seconds=3600, now=now + 3700) == 2
    assert numbers(store, "out/films") == [3]
    assert running in data_files(root)
    assert (tmp_path / "out/films/data/users-own.parquet").exists()
    assert counts(root) == {"a": 3}


def test_partitions_that_a_delivery_does_not_touch_keep_their_files(root):
    sink = sink_of(root, contract=PARTITIONED)
    rows = [film("a", day=1), film("b", day=2), {**film("c"), "day": None}]
    sink.deliver(delivery(None, at(1), rows, contract=PARTITIONED))
    first = {each.partition["day"]: each.path for each in read_manifest(f"{root}/out/films").manifest.files}
    assert set(first) == {"2026-01-01", "2026-01-02", None}
    # A row that moves to another day leaves its old one.
    sink.deliver(delivery(at(1), at(2), [film("b", 7, day=1)], contract=PARTITIONED))
    files = read_manifest(f"{root}/out/films").manifest.files
    assert {each.path for each in files} > {first["2026-01-01"], first[None]}
    assert "2026-01-02" not in {each.partition["day"] for each in files}
    assert counts(root) == {"a": 1, "b": 7, "c": 1}


def test_many_partitions_and_small_files_come_together(tmp_path):
    root = str(tmp_path)
    sink = sink_of(root, contract=PARTITIONED, max_file_bytes=20_000)
    days = [film(f"{day}-{n}", day=day) for day in range(1, 29) for n in range(3)]
    sink.deliver(delivery(None, at(1), days, contract=PARTITIONED))
    assert len(counts(root)) == 84
    sink = sink_of(root)
    for version in range(2, 21):
        sink.deliver(delivery(at(version - 1), at(version), [film(f"x{version}")]))
    assert len(read_manifest(f"{root}/out/films").manifest.files) < 40
    assert len(counts(root)) == 84 + 19


def test_columns_are_added_and_widened(tmp_path):
    root = str(tmp_path)
    sink = sink_of(root)
    sink.deliver(delivery(None, at(1), [film("a")]))
    wider = dataclasses.replace(
        CONTRACT,
        columns=(
            *tuple(
                dataclasses.replace(
                    each, type={"count": "BIGINT", "amount": "DECIMAL(20,4)"}.get(each.name, each.type)
                )
                for each in CONTRACT.columns
            ),
            dataclasses.replace(CONTRACT.column("tags"), name="more"),
        ),
    )
    sink.prepare(wider)
    sink.deliver(delivery(at(1), at(2), [{**film("b"), "count": 2**40, "more": ["x"]}], contract=wider))
    assert counts(root) == {"a": 1, "b": 2**40}
    with pytest.raises(SinkRefused, match="'amount' of type DECIMAL"):
        sink_of(root)


def test_values_of_every_type_come_back(tmp_path):
    root = str(tmp_path)
    sink_of(root).deliver(delivery(None, at(1), [film("a"), {"film_id": "nothing"}]))
    import pyarrow.parquet as pq

    table = pq.read_table(read_manifest(f"{root}/out/films").files[0])
    assert table.to_pylist()[0] == film("a")
    assert (
        table.schema.field("rates").type
        == pq.read_schema(read_manifest(f"{root}/out/films").files[0]).field("rates").type
    )


def test_a_target_outside_of_the_root_is_refused(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path)
    for target in ("../x", "/x", "a/../../x", "link/x", "", "a//b", ".hidden"):
        with pytest.raises(SinkRefused, match="not a folder below"):
            FilesSink(str(tmp_path / "root"), target)


def test_a_full_disk_changes_nothing(tmp_path):
    with small_disk(tmp_path / "small", mebibytes=1) as disk:
        sink = sink_of(str(disk))
        sink.deliver(delivery(None, at(1), [film("a")]))
        filler = fill(disk)
        with pytest.raises(SinkUnavailable, match="No space left"):
            sink.deliver(many(at(1), at(2), 50_000))
        filler.unlink()
        assert counts(str(disk)) == {"a": 1}
        sink.deliver(delivery(at(1), at(2), [film("b")]))
        assert counts(str(disk)) == {"a": 1, "b": 1}


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path, tell):
    root = str(tmp_path)
    sink = sink_of(root)
    sink.deliver(many(None, at(1), 50_000))
    sink.deliver(many(at(1), at(2), 50_000))
    with growth() as grown:
        sink.deliver(many(at(2), at(3), 600_000, whole=True))
    tell(f"Parquet files, 600,000 rows: {grown.mib} MiB more")
    manifest = newest(open_store(root), "out/films")
    assert manifest is not None
    assert manifest.rows == 600_000
    assert grown.mib < 200


class TestFilesSinkContract(SinkContract):
    """It keeps the contract of sinks."""

    @pytest.fixture
    def opened(self, root):
        return lambda: FilesSink(root, "out/films")

    @pytest.fixture
    def stored(self, root):
        def rows():
            store, manifest = open_store(root), read_manifest(f"{root}/out/films").manifest
            contents = [b"".join(store.read(f"out/films/{each.path}") or ()) for each in manifest.files]
            return {row for each in contents for row in pl.read_parquet(each).select("id", "name").rows()}

        return rows
