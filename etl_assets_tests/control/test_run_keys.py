"""A request for a run under a key gets one run, however often and by however many it is sent."""

from __future__ import annotations

import threading
import uuid

import pytest

from etl_assets.control.run_controls import RunControls
from etl_assets.control.states import RunStatus


@pytest.fixture
def pipeline():
    return f"p{uuid.uuid4().hex[:8]}"


def carry(controls: RunControls, pipeline: str) -> None:
    lease = controls.claim("runner", [pipeline])
    assert lease is not None
    controls.finish(lease)


def test_a_key_names_its_run_after_the_run_has_ended(open_again, pipeline):
    controls = RunControls(open_again())
    first = controls.request_run(pipeline, "robot", key=f"{pipeline}/a")
    assert controls.request_run(pipeline, "robot", key=f"{pipeline}/a").id == first.id
    carry(controls, pipeline)
    again = RunControls(open_again()).request_run(pipeline, "robot", key=f"{pipeline}/a")
    assert (again.id, again.status) == (first.id, RunStatus.SUCCEEDED)
    assert controls.request_run(pipeline, "robot", key=f"{pipeline}/b").id != first.id


def test_a_key_that_got_a_run_of_another_request_keeps_it(open_again, pipeline):
    controls = RunControls(open_again())
    waiting = controls.request_run(pipeline, "alice")
    assert controls.request_run(pipeline, "robot", key=f"{pipeline}/a").id == waiting.id
    carry(controls, pipeline)
    assert controls.request_run(pipeline, "robot", key=f"{pipeline}/a").id == waiting.id
    assert len(controls.runs(pipeline)) == 1


def test_a_key_that_is_sent_many_times_at_once_gets_one_run(open_again, pipeline):
    begin, got = threading.Barrier(6), []

    def ask() -> None:
        controls = RunControls(open_again())
        begin.wait()
        got.append(controls.request_run(pipeline, "robot", key=f"{pipeline}/a").id)
        carried = controls.claim("runner", [pipeline])
        if carried is not None:
            controls.finish(carried)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert (len(got), len(set(got))) == (6, 1)
    assert [each.id for each in RunControls(open_again()).runs(pipeline)] == got[:1]
