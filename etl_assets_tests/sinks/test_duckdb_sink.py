"""The DuckDB sink: real files, real processes."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import duckdb
import pytest

from etl_assets.errors import SinkFenced, SinkRefused, SinkUnavailable
from etl_assets.sinks.duckdb.file import opened
from etl_assets.sinks.duckdb.sink import MEMORY_LIMIT, DuckdbSink
from etl_assets_tests.reference.peak_memory import growth
from etl_assets_tests.sinks.contract import SinkContract
from etl_assets_tests.sinks.deliveries import CONTRACT, at, delivery, film, many


def sink_of(tmp_path: Path, table: str = "films") -> DuckdbSink:
    sink = DuckdbSink(tmp_path / "films.duckdb", table, allowed=[tmp_path])
    sink.prepare(CONTRACT)
    return sink


def counts(tmp_path: Path) -> dict[str, int]:
    with duckdb.connect(str(tmp_path / "films.duckdb")) as connection:
        return dict(connection.execute('SELECT film_id, "count" FROM films').fetchall())


def script(tmp_path: Path, body: str, **environ: str) -> Any:  # a process with pipes
    code = f"""
        import sys, time
        from pathlib import Path
        from etl_assets_tests.sinks.deliveries import *
        from etl_assets.sinks.duckdb.sink import DuckdbSink
        folder = Path({str(tmp_path)!r})
        sink = DuckdbSink(folder / "films.duckdb", "films", allowed=[folder])
        sink.prepare(CONTRACT)
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code) + textwrap.dedent(body)],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )


def test_rows_and_deletes_follow_the_table(tmp_path):
    sink = sink_of(tmp_path)
    assert sink.position() is None
    done = sink.deliver(delivery(None, at(1), [film("a"), film("b")], whole=True))
    assert (done.written, done.deleted) == (2, 0)
    done = sink.deliver(delivery(at(1), at(2), [film("a", 2), film("c")], ["b", "unknown"]))
    assert (done.written, done.deleted) == (2, 1)
    assert sink.position() == at(2)
    done = sink.deliver(delivery(at(2), at(3), [film("c", 9)], whole=True))
    assert (done.written, done.deleted) == (1, 1)
    sink.close()
    assert counts(tmp_path) == {"c": 9}


def test_values_of_every_type_come_back(tmp_path):
    sink = sink_of(tmp_path)
    nothing = {"film_id": "nothing"}
    sink.deliver(delivery(None, at(1), [film("a"), nothing]))
    sink.close()
    with duckdb.connect(str(tmp_path / "films.duckdb")) as connection:
        names = [each[0] for each in connection.execute("DESCRIBE films").fetchall()]
        row = dict(
            zip(names, connection.execute("FROM films WHERE film_id = 'a'").fetchall()[0], strict=True)
        )
        assert connection.execute("SELECT count(*) FROM films WHERE maker IS NULL").fetchall() == [(1,)]
    expected = film("a")
    assert {**row, "rates": list(dict(row["rates"]).items())} == expected


def test_a_delivery_from_another_position_changes_nothing(tmp_path):
    sink = sink_of(tmp_path)
    sink.deliver(delivery(None, at(1), [film("a")]))
    for before in (None, at(0), at(1, "other")):
        with pytest.raises(SinkFenced, match="begins at"):
            sink.deliver(delivery(before, at(2), [film("z")]))
    assert sink.position() == at(1)
    sink.close()
    assert counts(tmp_path) == {"a": 1}


def test_of_two_connections_of_one_process_one_wins(tmp_path):
    first, second = sink_of(tmp_path), sink_of(tmp_path)
    nested = []

    def rows():
        # The second delivers while the first has compared the position and not committed.
        try:
            second.deliver(delivery(None, at(1), [film("b")]))
        except SinkFenced as error:
            nested.append(error)
        yield from delivery(None, at(1), [film("a")]).rows()

    first.deliver(dataclasses.replace(delivery(None, at(1)), rows=rows))
    first.close()
    second.close()
    assert nested
    assert counts(tmp_path) == {"a": 1}


@pytest.mark.kill
@pytest.mark.parametrize(
    "point", ["sink.during_delivery", "sink.before_target_commit", "sink.after_target_commit"]
)
def test_a_killed_delivery_is_there_once_or_not_at_all(tmp_path, point):
    sink = sink_of(tmp_path)
    sink.deliver(delivery(None, at(1), [film("a"), film("b")]))
    sink.close()
    body = "sink.deliver(delivery(at(1), at(2), [film('a', 2)], ['b']))"
    killed = script(tmp_path, body, ETL_ASSETS_FAILPOINT=point)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    sink = sink_of(tmp_path)
    assert sink.position() == (at(2) if point == "sink.after_target_commit" else at(1))
    if sink.position() == at(1):
        sink.deliver(delivery(at(1), at(2), [film("a", 2)], ["b"]))
    sink.close()
    assert counts(tmp_path) == {"a": 2}


@pytest.mark.kill
def test_another_process_that_has_the_file_open_is_named_and_loses_once_it_is_late(tmp_path):
    late = script(
        tmp_path,
        """
        print(sink.position(), flush=True)
        sys.stdin.readline()
        sink.close()
        print("closed", flush=True)
        sys.stdin.readline()
        try:
            sink.prepare(CONTRACT)
            sink.deliver(delivery(None, at(1), [film("late")]))
        except Exception as error:
            print(type(error).__name__, flush=True)
        """,
    )
    try:
        assert late.stdout.readline() == "None\n"
        late.send_signal(signal.SIGSTOP)
        with pytest.raises(SinkUnavailable, match="another process has"):
            sink_of(tmp_path)
        late.send_signal(signal.SIGCONT)
        late.stdin.write("\n")
        late.stdin.flush()
        assert late.stdout.readline() == "closed\n"
        sink = sink_of(tmp_path)
        sink.deliver(delivery(None, at(1), [film("a")]))
        sink.close()
        late.stdin.write("\n")
        late.stdin.flush()
        assert late.stdout.readline() == "SinkFenced\n"
        assert late.wait(30) == 0
    finally:
        late.kill()
        late.communicate()
    assert counts(tmp_path) == {"a": 1}


def test_columns_are_added_and_widened(tmp_path):
    sink = sink_of(tmp_path)
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
    sink.close()
    with duckdb.connect(str(tmp_path / "films.duckdb")) as connection:
        found = connection.execute('SELECT film_id, "count", more FROM films ORDER BY 1').fetchall()
    assert found == [("a", 1, None), ("b", 2**40, ["x"])]
    with pytest.raises(SinkRefused, match=r"'amount' of type DECIMAL\(20,4\)"):
        sink_of(tmp_path)


def test_a_table_with_rows_of_others_is_left_alone(tmp_path):
    with duckdb.connect(str(tmp_path / "films.duckdb")) as connection:
        connection.execute("CREATE TABLE films AS SELECT 'mine' AS film_id")
        connection.execute("CREATE VIEW a_view AS SELECT 1 AS film_id")
    with pytest.raises(SinkRefused, match="no delivery wrote"):
        sink_of(tmp_path)
    with pytest.raises(SinkRefused, match="is a view"):
        sink_of(tmp_path, "a_view")


def test_a_table_that_was_dropped_begins_again(tmp_path):
    sink = sink_of(tmp_path)
    sink.deliver(delivery(None, at(1), [film("a")]))
    sink.close()
    with duckdb.connect(str(tmp_path / "films.duckdb")) as connection:
        connection.execute("DROP TABLE films")
    sink = sink_of(tmp_path)
    assert sink.position() is None
    sink.close()


def test_a_file_outside_of_the_allowed_folders_is_refused(tmp_path):
    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    allowed.mkdir()
    outside.mkdir()
    (allowed / "link").symlink_to(outside)
    (allowed / "link.duckdb").symlink_to(outside / "x.duckdb")
    for name in ("../outside/x.duckdb", "link/x.duckdb", "link.duckdb"):
        with pytest.raises(SinkRefused, match="not below an allowed folder"):
            DuckdbSink(allowed / name, "films", allowed=[allowed])
    with pytest.raises(SinkRefused, match="no folder"):
        DuckdbSink(allowed / "missing" / "x.duckdb", "films", allowed=[allowed])
    assert not list(outside.iterdir())


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "films.duckdb").write_bytes(b"film_id,count\n" * 1000)
    with pytest.raises(SinkRefused, match="no DuckDB database"):
        sink_of(tmp_path)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path, tell):
    sink = DuckdbSink(tmp_path / "films.duckdb", "films", allowed=[tmp_path], memory_limit="200MB")
    sink.prepare(CONTRACT)
    sink.deliver(many(None, at(1), 50_000))
    with growth() as grown:
        sink.deliver(many(at(1), at(2), 600_000))
    sink.close()
    tell(f"DuckDB, 600,000 rows: {grown.mib} MiB more")
    assert grown.mib < 350


class TestDuckdbSinkContract(SinkContract):
    """It keeps the contract of sinks."""

    @pytest.fixture
    def opened(self, tmp_path):
        return lambda: DuckdbSink(tmp_path / "films.duckdb", "films", allowed=[tmp_path])

    @pytest.fixture
    def stored(self, tmp_path):
        def rows():
            # With the settings of the sink, which this process may have open.
            with opened(tmp_path / "films.duckdb", memory_limit=MEMORY_LIMIT, threads=2) as connection:
                return set(connection.execute("SELECT id, name FROM films").fetchall())

        return rows
