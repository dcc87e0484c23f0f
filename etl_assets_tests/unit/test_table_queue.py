"""Steps that write one table take turns: nobody is overtaken, nobody waits for the dead, and a wait can be
ended.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from etl_assets.ingest import step as ingest
from etl_assets.ingest.step import Ingest
from etl_assets.sources.batch_plan import BatchPlan
from etl_assets.steps import table_queue as module
from etl_assets.steps.step import StepReport
from etl_assets.steps.table_queue import TableQueue, give_way
from etl_assets_tests.pipeline import Pipeline, event

HOLDER = """
import sys, time
from pathlib import Path
from etl_assets.steps.table_queue import TableQueue
with TableQueue(folder=Path(sys.argv[1])).take("orders"):
    print("begun", flush=True)
    time.sleep(60)
"""
AGAIN_AND_AGAIN = """
import sys, time
from pathlib import Path
from etl_assets.steps.table_queue import TableQueue
turns, taken = TableQueue(folder=Path(sys.argv[1])), 0
while True:
    with turns.take("orders"):
        taken += 1
        Path(sys.argv[1], "taken").write_text(str(taken))
        if taken == 1:
            print("begun", flush=True)
        time.sleep(0.1)
"""
WAITING = """
import signal
import sys
from pathlib import Path
from etl_assets.steps.table_queue import TableQueue
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell began in the background
with TableQueue(folder=Path(sys.argv[1]), waiting=lambda: print("begun", flush=True)).take("orders"):
    raise AssertionError("it is not free")
"""


@pytest.fixture
def turns(tmp_path: Path) -> TableQueue:
    return TableQueue(folder=tmp_path)


@contextmanager
def process(code: str, turns: TableQueue) -> Generator[subprocess.Popen[str]]:
    """Another process, once it says that it has begun; killed in the end."""
    arguments = [sys.executable, "-c", code, str(turns.folder)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "begun\n"
            yield other
        finally:
            other.kill()


def is_free(turns: TableQueue, table: str) -> bool:
    with turns.take_if_free(table) as free:
        return free


def thread(target: Callable[[], None]) -> threading.Thread:
    started = threading.Thread(target=target, daemon=True)
    started.start()
    return started


def test_one_that_takes_its_next_turn_at_once_does_not_overtake_who_waits(turns):
    with process(AGAIN_AND_AGAIN, turns):
        for _ in range(5):
            before = int((turns.folder / "taken").read_text())
            with turns.take("orders"):
                overtaken = int((turns.folder / "taken").read_text()) - before
            assert overtaken < 10, "but for turns that began before this process had asked"


def test_three_who_want_it_all_the_time_all_get_it(turns):
    taken: list[int] = []

    def want(number: int) -> None:
        while len(taken) < 30:
            with turns.take("orders"):
                taken.append(number)

    for each in [thread(lambda number=number: want(number)) for number in range(3)]:
        each.join(60)
    assert set(taken) == {0, 1, 2}


def test_a_turn_ends_with_its_process(turns):
    with process(HOLDER, turns) as other:
        with turns.take_if_free("orders") as is_free:
            assert not is_free
        other.kill()
        with turns.take("orders"):
            assert other.wait() == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_who_waits_can_be_ended_and_is_not_waited_for_afterwards(turns, number):
    with turns.take("orders"), process(WAITING, turns) as other:
        other.send_signal(number)
        assert other.wait(30) == -number
    with turns.take_if_free("orders") as is_free:
        assert is_free


def test_what_is_raised_while_it_waits_ends_the_wait(turns):
    def leave() -> None:
        raise InterruptedError

    with (
        process(HOLDER, turns),
        pytest.raises(InterruptedError),
        TableQueue(folder=turns.folder, waiting=leave).take("orders"),
    ):
        pass


def test_tables_do_not_wait_for_one_another(turns):
    with process(HOLDER, turns), turns.take_if_free("customers") as is_free:
        assert is_free


def test_a_step_in_a_step_waits_for_nobody_so_that_no_two_wait_for_each_other(turns):
    both = threading.Barrier(2)

    def work(first: str, second: str) -> None:
        with turns.take(first):
            both.wait(30)
            with turns.take(second), turns.take(first):
                both.wait(30)

    threads = [thread(lambda: work("orders", "customers")), thread(lambda: work("customers", "orders"))]
    for each in threads:
        each.join(30)
    assert not any(each.is_alive() for each in threads)
    for table in ("orders", "customers"):
        with turns.take_if_free(table) as is_free:
            assert is_free


def test_who_wants_the_turns_of_several_tables_gets_all_of_them_and_waits_in_no_circle(turns):
    done: list[tuple[str, ...]] = []

    def want(*tables: str) -> None:
        for _ in range(10):
            with turns.take(*tables):
                for table in tables:
                    with ThreadPoolExecutor(1) as another:
                        assert not another.submit(is_free, turns, table).result()
        done.append(tables)

    orders = [
        ("orders", "customers", "letters"),
        ("letters", "orders"),
        ("customers", "letters"),
        ("orders",),
    ]
    for each in [thread(lambda tables=tables: want(*tables)) for tables in orders]:
        each.join(60)
    assert sorted(done) == sorted(orders)
    assert all(is_free(turns, table) for table in ("orders", "customers", "letters"))


def test_a_wait_that_is_ended_lets_go_of_the_turns_it_had(turns):
    def leave() -> None:
        raise InterruptedError

    with (
        process(HOLDER, turns),
        pytest.raises(InterruptedError),
        TableQueue(folder=turns.folder, waiting=leave).take("customers", "orders"),
    ):
        pass
    assert is_free(turns, "customers")


def test_giving_way_lets_one_in_that_waits_and_goes_on_after_it(turns):
    waits, order = threading.Event(), []

    def other() -> None:
        with TableQueue(folder=turns.folder, waiting=waits.set).take("orders"):
            order.append("other")

    with turns.take("orders"):
        waiter = thread(other)
        assert waits.wait(30)
        with turns.take("orders"):
            order.append("before")
        give_way()
        order.append("after")
        # Only who has it signs.
        assert f'"pid": {os.getpid()}' in (turns.folder / "orders.turn").read_text()
        waiter.join(30)
    assert order == ["before", "other", "after"]
    give_way()  # without a turn there is nothing to give


def test_what_is_free_is_left_to_somebody_who_waits(turns):
    with ExitStack() as other_waits:
        with turns.take("orders"):
            waiter = other_waits.enter_context(process(WAITING, turns))
            waiter.send_signal(signal.SIGSTOP)  # so that it does not see when its turn comes
        with turns.take_if_free("orders") as is_free:
            assert not is_free
    with turns.take_if_free("orders") as is_free:
        assert is_free


def test_a_long_wait_is_told_once_with_who_is_waited_for_and_has_an_end(turns, monkeypatch, caplog):
    monkeypatch.setattr(module, "SAID_AFTER_SECONDS", 0.1)
    monkeypatch.setattr(module, "MAX_WAIT_SECONDS", 0.5)
    caplog.set_level(logging.INFO, "etl_assets")
    worked = False
    with process(HOLDER, turns) as other:
        with turns.take("orders"):
            worked = True
        monkeypatch.setattr(module, "MAX_WAIT_SECONDS", 60)
        began = time.monotonic()
        with turns.take("orders"):
            pass
        assert time.monotonic() - began < 30, "one that hangs is waited for once"
    assert worked
    waits, goes_on = (record.getMessage() for record in caplog.records)
    assert waits.startswith(f"orders: waits for its turn; process {other.pid} has it since 20")
    assert goes_on.startswith(f"orders: goes on without its turn; process {other.pid} has it")


def test_a_short_wait_is_not_told(turns, monkeypatch, caplog):
    monkeypatch.setattr(module, "SAID_AFTER_SECONDS", 60)
    with process(AGAIN_AND_AGAIN, turns), turns.take("orders"):
        pass
    assert caplog.records == []


def test_raw_events_gives_way_after_each_batch(turns, tmp_path, monkeypatch):
    pipeline = Pipeline(root=tmp_path / "data", landing=tmp_path / "landing", session=lambda: None)
    pipeline = replace(pipeline, max_batch_bytes=1)  # a batch for each file
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        pipeline.land([event()], name=name)
    waits, order = threading.Event(), []

    def other() -> None:
        with TableQueue(folder=turns.folder, waiting=waits.set).take("raw_events"):
            order.append("other")

    waiter = threading.Thread(target=other)

    def carry_out(_step: Ingest, plan: BatchPlan) -> StepReport:
        order.append(plan.files[0].name)
        if len(order) == 1:
            waiter.start()
            assert waits.wait(30)
        return StepReport(table="raw_events", version=0, commits=1)

    monkeypatch.setattr(ingest, "ensure_table", lambda *_args, **_options: 0)
    monkeypatch.setattr(Ingest, "_carry_out", carry_out)
    with turns.take("raw_events"):
        pipeline.run(only=["raw_events"])
    waiter.join(30)
    assert order == ["a.jsonl", "other", "b.jsonl", "c.jsonl"]
