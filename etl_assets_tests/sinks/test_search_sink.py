"""The search sink on a real server."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import uuid

import pyarrow as pa
import pytest

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.errors import SinkRefused, SinkUnavailable
from etl_assets.sinks.search.client import Patience, SearchServer
from etl_assets.sinks.search.document_ids import document_ids
from etl_assets.sinks.search.sink import SearchSink, SearchTarget
from etl_assets.sinks.sink import Rejection
from etl_assets_tests.reference.fault_proxy import Fault, FaultProxy
from etl_assets_tests.reference.peak_memory import growth
from etl_assets_tests.sinks.contract import CONTRACT, SinkContract, at, delivery, many

QUICK = Patience(attempts=3, first_delay_seconds=0.01, timeout_seconds=2)


def sink_at(port, index, *, write=("*",), mappings=None, patience=QUICK):
    server = SearchServer(urls=(f"http://127.0.0.1:{port}",))
    return SearchSink(
        SearchTarget(server=server, index=index, write=write, mappings=mappings or {}, patience=patience)
    )


@pytest.fixture
def index() -> str:
    return f"films{uuid.uuid4().hex[:10]}"


@pytest.fixture
def port(opensearch_server) -> int:
    return opensearch_server.port


@pytest.fixture
def opened(port, index):
    return lambda: sink_at(port, index, patience=Patience())


@pytest.fixture
def stored(opened, index):
    def read():
        sink = opened()
        found = sink._client.send("GET", f"/{index}/_search", {"size": 10_000})
        sink.close()
        hits = found.body["hits"]["hits"] if found.ok else []
        return {(hit["_source"]["id"], hit["_source"]["name"]) for hit in hits}

    return read


@pytest.fixture
def sink(opened):
    sink = opened()
    sink.prepare(CONTRACT)
    yield sink
    sink.close()


class TestSearchSink(SinkContract):
    """It keeps the contract of sinks."""


def test_a_late_writer_brings_no_deleted_row_back_even_after_the_engine_forgot_deletes(sink, index, stored):
    sink.deliver(delivery(None, at(1), [(1, "a"), (2, "b")], whole=True))
    sink._client.send("PUT", f"/{index}/_settings", {"index.gc_deletes": "0s"})
    sink.deliver(delivery(at(1), at(2), [(3, "c")], [2, 9]))
    late = sink.deliver(delivery(at(1), at(1), [(2, "b"), (9, "never seen"), (3, "old")]))
    assert stored() == {(1, "a"), (3, "c")}
    assert late.unchanged == 3


def test_newer_tombstones_at_the_same_version_of_the_table_win(sink, stored):
    sink.deliver(delivery(None, at(5, tombstones=1), [(1, "a"), (2, "b")], whole=True))
    sink.deliver(delivery(at(5, tombstones=1), at(5, tombstones=2), [], [2]))
    sink.deliver(delivery(at(4), at(5, tombstones=1), [(2, "b")]))
    assert stored() == {(1, "a")}


def test_after_a_whole_delivery_older_writers_change_nothing(sink, stored):
    sink.deliver(delivery(None, at(1), [(1, "a"), (2, "b")], whole=True))
    done = sink.deliver(delivery(at(1), at(7), [(1, "undone")], whole=True))
    assert (done.written, done.deleted) == (1, 1)
    sink.deliver(delivery(at(1), at(3), [(2, "b"), (8, "never seen")], [1]))
    sink.deliver(delivery(at(1), at(4), [(2, "b")], whole=True))
    assert stored() == {(1, "undone")}


def test_a_table_that_was_created_again_begins_with_versions_of_its_own(sink, stored):
    sink.deliver(delivery(None, at(9), [(1, "a")], whole=True))
    sink.deliver(delivery(at(9), at(0, table_id="b"), [(2, "new")], whole=True))
    assert stored() == {(2, "new")}


def test_an_index_that_was_removed_is_refused_and_not_begun_with_a_part(sink, index):
    sink.deliver(delivery(None, at(1), [(1, "a")], whole=True))
    name = next(iter(sink._client.send("GET", f"/{index}/_alias").body))
    sink._client.send("DELETE", f"/{name}")
    with pytest.raises(SinkRefused, match="no longer has the table"):
        sink.deliver(delivery(at(1), at(2), [(2, "b")]))


def test_a_document_that_the_engine_refuses_is_rejected_with_its_reason(port, index, stored):
    sink = sink_at(port, index, mappings={"name": {"type": "keyword"}})
    sink.prepare(CONTRACT)
    rejected: list[Rejection] = []
    rows = [(1, "a"), (2, "x" * 40_000), (3, 'quo"te\n\\')]
    done = sink.deliver(delivery(None, at(1), rows, whole=True, rejected=rejected))
    assert (done.written, done.rejected) == (2, 1)
    assert rejected[0].keys == '{"id":2}'
    assert "immense term" in rejected[0].error
    assert stored() == {(1, "a"), (3, 'quo"te\n\\')}
    sink.close()


def test_what_is_not_allowed_or_has_another_type_is_refused(port, index, sink):
    with pytest.raises(SinkRefused, match="may be written"):
        sink_at(port, index, write=("other*",)).prepare(CONTRACT)
    sink.deliver(delivery(None, at(1), [(1, "a")], whole=True))
    changed = TableContract(
        name="films",
        description="Films.",
        columns=(Column("id", "BIGINT", "Key."), Column("name", "BIGINT", "Now a number.", nullable=True)),
        merge_key=("id",),
    )
    with pytest.raises(SinkRefused, match=r"field name of .* is keyword, not long"):
        sink.prepare(changed)


def test_lost_answers_leave_each_row_once(port, index, stored):
    proxy = FaultProxy(port, random.Random(0))
    sink = sink_at(proxy.port, index)
    sink.prepare(CONTRACT)
    rows = [(key, "a") for key in range(300)]
    with proxy.fault(Fault.ANSWERS_LOST), pytest.raises(SinkUnavailable):
        sink.deliver(delivery(None, at(1), rows, whole=True))
    sink.deliver(delivery(None, at(1), rows, whole=True))
    sink.close()
    proxy.close()
    assert stored() == set(rows)


def test_an_engine_that_falls_silent_is_unavailable_and_the_delivery_is_repeated(port, index, sink, stored):
    proxy = FaultProxy(port, random.Random(0))
    hasty = sink_at(proxy.port, index)
    hasty.prepare(CONTRACT)
    with proxy.fault(Fault.SILENT), pytest.raises(SinkUnavailable, match="no answer within 2 s"):
        hasty.deliver(delivery(None, at(1), [(1, "a")], whole=True))
    hasty.close()
    proxy.close()
    sink.deliver(delivery(None, at(1), [(1, "a")], whole=True))
    assert stored() == {(1, "a")}


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(sink, index, tell):
    sink.deliver(many(None, at(1), 20_000, whole=True))
    with growth() as grown:
        sink.deliver(many(at(1), at(2), 200_000, whole=True))
    tell(f"Search sink, 200,000 rows: {grown.mib} MiB more")
    assert sink._client.send("GET", f"/{index}/_count").body["count"] == 200_000
    assert grown.mib < 30


DELIVERING = """
import sys
from etl_assets_tests.sinks.contract import CONTRACT, at, delivery
from etl_assets_tests.sinks.test_search_sink import sink_at
sink = sink_at(int(sys.argv[1]), sys.argv[2])
sink.prepare(CONTRACT)
sink.deliver(delivery(at(1), at(2), [(key, "new") for key in range(2, 3000)], whole=True))
"""


@pytest.mark.kill
@pytest.mark.parametrize("place", ["search.after_request", "search.before_alias", "search.after_alias"])
def test_a_process_that_is_killed_is_repeated_by_the_next_one(place, port, index, sink, stored):
    sink.deliver(delivery(None, at(1), [(1, "a"), (2, "b")], whole=True))
    command = [sys.executable, "-c", DELIVERING, str(port), index]
    killed = subprocess.run(command, env={**os.environ, "ETL_ASSETS_FAILPOINT": place}, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert subprocess.run(command, timeout=120).returncode == 0
    assert stored() == {(key, "new") for key in range(2, 3000)}


def test_ids_of_different_keys_are_different():
    values = ["", "a", "b", "|", "\\", "a|b", "\\E", "\\N", None, "x" * 600, "x" * 601]
    pairs = [(one, two) for one in values for two in values]
    columns = [pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1)]
    ids = document_ids(columns).to_pylist()
    assert len(set(ids)) == len(pairs)
    assert all(0 < len(each.encode()) <= 512 for each in ids)
