"""A Kafka topic by the commands that a user types: a run that is killed, the next one, and the worker."""

from __future__ import annotations

import signal
import time

import pytest

from etl_assets.failpoints import Failpoint
from etl_assets_tests.sources.topics import SOURCE, Topic

pytestmark = [pytest.mark.spark, pytest.mark.kill]


def test_a_killed_run_is_completed_by_the_next_one_and_the_worker_follows(kafka_server, tmp_path):
    topic = Topic.create(kafka_server.url, tmp_path, partitions=2)
    topic.send([{"id": "a", "age": 1}, b"bad", {"id": "b", "age": 2}])
    died = topic.home.start("run", failpoint=f"{Failpoint.EXCEPTIONS_AFTER_COMMIT}@{SOURCE}").ended(150)
    assert died.code != 0, died
    assert topic.accepted() == []
    topic.send([{"id": "a", "age": 1}, {"id": "c", "age": 3}], partition=1)
    done = topic.home.start("run").ended(150)
    assert done.code == 0, done
    assert sorted(row["id"] for row in topic.home.rows("people")) == ["a", "b", "c"]
    assert [row["outcome"] for row in topic.rejected()] == ["rejected", "duplicate"]
    again = topic.home.start("run").ended(100)
    assert "nothing to do" in again.out + again.err, again
    worker = topic.home.start("worker")
    try:
        topic.send([{"id": "d", "age": 4}])
        until = time.monotonic() + 90
        while time.monotonic() < until and len(topic.home.rows("people")) < 4:
            time.sleep(0.5)
    finally:
        worker.send(signal.SIGTERM)
        worker.ended(60)
    assert sorted(row["id"] for row in topic.home.rows("people")) == ["a", "b", "c", "d"], worker.err
