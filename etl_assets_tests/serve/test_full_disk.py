"""A disk that is full while events come: refused with the reason, and exact once there is space. No Spark."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from deltalake import DeltaTable

from etl_assets.settings import load_settings
from etl_assets_tests.reference.small_disk import fill, small_disk
from etl_assets_tests.serve.ingest_process import ingest
from etl_assets_tests.serve.server_process import PIPELINE, ServerProcess, serving, write_installation

CLIENTS, ROUNDS = 4, 3


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", mebibytes=32) as folder:
        yield folder


class Load:
    """Clients that send each request, under its key, until it is stored."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self.refusals: list[dict[str, Any]] = []
        self.seen: Counter[int] = Counter()
        self._numbers, self._end = itertools.count(), threading.Event()

    @contextmanager
    def against(self, server: ServerProcess) -> Generator[None]:
        """Send to a server until the block ends."""
        with ThreadPoolExecutor(CLIENTS) as threads:
            clients = [threads.submit(self._send, server) for _ in range(CLIENTS)]
            try:
                yield
            finally:
                self._end.set()
            for each in clients:
                each.result(60)

    def until_more(self, status: int) -> None:
        """Wait for some more answers of a status."""
        wanted, deadline = self.seen[status] + 5, time.monotonic() + 60
        while self.seen[status] < wanted:
            assert time.monotonic() < deadline, f"{status} is not answered any more: {self.seen}"
            time.sleep(0.01)

    def _send(self, server: ServerProcess) -> None:
        with server.client() as client:
            while not self._end.is_set():
                some = [next(self._numbers) for _ in range(50)]
                events, key = [{"id": each, "film": "f" * 200} for each in some], f"k{some[0]}"
                while (answer := self._post(client, server, events, key)).status_code != 202:
                    self.refusals.append(answer.json())
                    time.sleep(0.05)
                self.acknowledged += some

    def _post(self, client: httpx.Client, server: ServerProcess, events: Any, key: str) -> httpx.Response:
        answer = client.post(server.events, json=events, headers={"idempotency-key": key})
        self.seen[answer.status_code] += 1
        return answer


def test_what_a_full_disk_refuses_is_not_acknowledged_and_what_was_acknowledged_counts_once(
    tmp_path, disk, monkeypatch
):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    # Without ids every record that is stored twice would be two rows.
    domains = [{"name": "local", "root": str(disk / "data")}]
    write_installation(tmp_path, with_id=False, domains=domains)
    load = Load()
    with serving(tmp_path) as server:
        with load.against(server):
            for _ in range(ROUNDS):
                load.until_more(202)
                filler = fill(disk)
                load.until_more(503)
                with server.client() as client:
                    assert client.get(f"{server.url}/health").status_code == 200
                filler.unlink()
            load.until_more(202)
        assert server.terminate() is not None
    assert set(load.seen) == {202, 503}
    assert all(each["domains"] == {"local": "No space left on device"} for each in load.refusals)
    left = [path.name for path in disk.rglob("journal/**/.*")]
    assert not left, "what could not be written is gone"
    ingest()
    table = load_settings().placement().domains[0].table_path(f"{PIPELINE}_source")
    records = DeltaTable(str(table)).to_pyarrow_table(columns=["record"]).column("record").to_pylist()
    assert Counter(map(_number, records)) == Counter(load.acknowledged)


def _number(record: str) -> int:
    return int(record.rpartition(":")[2].rstrip("}"))
