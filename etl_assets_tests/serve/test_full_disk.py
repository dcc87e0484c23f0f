"""A disk that is full while events come: refused with the reason, and exact once there is space. No Spark."""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from etl_assets.settings import load_settings
from etl_assets_tests.serve.ingest_process import ingest
from etl_assets_tests.serve.server_process import PIPELINE, serving, write_installation

ROUNDS = 3


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a size-limited tmpfs cannot be mounted by this user: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4_096)
        except OSError:
            return filler


def test_what_a_full_disk_refuses_is_not_acknowledged_and_what_was_acknowledged_counts_once(
    tmp_path, small_disk, monkeypatch
):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    # Without ids every record that is stored twice would be two rows.
    domains = [{"name": "local", "root": str(small_disk / "data")}]
    write_installation(tmp_path, with_id=False, domains=domains)
    numbers, acknowledged, seen = itertools.count(), [], Counter()
    end, refusals = threading.Event(), []

    def send(server) -> None:
        with server.client() as client:
            while not end.is_set():
                some = [next(numbers) for _ in range(50)]
                events, key = [{"id": each, "film": "f" * 200} for each in some], f"k{some[0]}"
                while True:  # the same request, until it is stored
                    answer = client.post(server.events, json=events, headers={"idempotency-key": key})
                    seen[answer.status_code] += 1
                    if answer.status_code == 202:
                        break
                    refusals.append(answer.json())
                    time.sleep(0.05)
                acknowledged.extend(some)

    with serving(tmp_path) as server:
        senders = [threading.Thread(target=send, args=(server,)) for _ in range(4)]
        for each in senders:
            each.start()
        try:
            for _ in range(ROUNDS):
                _until_more(seen, 202)
                filler = fill(small_disk)
                _until_more(seen, 503)
                with server.client() as client:
                    assert client.get(f"{server.url}/health").status_code == 200
                filler.unlink()
            _until_more(seen, 202)
        finally:
            end.set()
            for each in senders:
                each.join(60)
        assert server.terminate() is not None
    assert set(seen) == {202, 503}
    assert all(each["domains"] == {"local": "No space left on device"} for each in refusals)
    left = [path.name for path in small_disk.rglob("journal/**/.*")]
    assert not left, "what could not be written is gone"
    ingest()
    table = load_settings().placement().domains[0].table_path(f"{PIPELINE}_source")
    records = DeltaTable(str(table)).to_pyarrow_table(columns=["record"]).column("record").to_pylist()
    assert Counter(map(_number, records)) == Counter(acknowledged)


def _number(record: str) -> int:
    return int(record.rpartition(":")[2].rstrip("}"))


def _until_more(seen: Counter[int], status: int) -> None:
    """Wait for some more answers of a status."""
    wanted, deadline = seen[status] + 5, time.monotonic() + 60
    while seen[status] < wanted:
        assert time.monotonic() < deadline, f"{status} is not answered any more: {seen}"
        time.sleep(0.01)
