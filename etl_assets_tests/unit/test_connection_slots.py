"""Slots of connections among threads and processes, and steps that wait for them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from etl_assets.error_policy import Decision, decide
from etl_assets.errors import ConnectionBusy
from etl_assets.settings import Settings
from etl_assets.steps.connection_slots import ConnectionLimit, holders, limits_of, slots_taken

SHOP = ConnectionLimit(
    name="the connection shop", file="shop", slots=2, field="connections.shop.max_concurrency"
)
HOLDING = """
import sys, time
from pathlib import Path
from etl_assets.steps.connection_slots import ConnectionLimit, slots_taken
limit = ConnectionLimit(name="the connection shop", file="shop", slots=2, field="f")
with slots_taken([limit], Path(sys.argv[1]), sys.argv[2], 5):
    print("has it", flush=True)
    time.sleep(60)
"""


def connection(**given: object) -> Settings:
    shop = {"type": "folder", "path": "out", "write": ["*"], **given}
    return Settings.model_validate({"home": "unused", "connections": {"shop": shop}})


def test_no_more_steps_than_slots_are_at_work(tmp_path):
    at_work, most, lock = 0, 0, threading.Lock()

    def step() -> None:
        nonlocal at_work, most
        with slots_taken([SHOP], tmp_path, "films", 30):
            with lock:
                at_work += 1
                most = max(most, at_work)
            time.sleep(0.02)
            with lock:
                at_work -= 1

    threads = [threading.Thread(target=step) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (most, at_work) == (2, 0)


def test_a_wait_ends_by_an_error_that_names_who_has_the_slots_and_a_killed_process_frees_its_own(tmp_path):
    def hold(table: str) -> subprocess.Popen[bytes]:
        made = subprocess.Popen(
            [sys.executable, "-c", HOLDING, str(tmp_path), table],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
        )
        assert made.stdout is not None
        assert made.stdout.readline() == b"has it\n"
        return made

    one, two = hold("films_source"), hold("books_source")
    try:
        with pytest.raises(ConnectionBusy) as caught, slots_taken([SHOP], tmp_path, "songs_source", 0.1):
            pass
        for word in ("songs_source", "the connection shop", "films_source", "books_source", f"{one.pid}"):
            assert word in caught.value.message
        assert "connections.shop.max_concurrency" in (caught.value.fix or "")
        assert decide(caught.value) is Decision.RETRY
        one.kill()
        one.wait()
        with slots_taken([SHOP], tmp_path, "songs_source", 5):
            assert sorted(each.table for each in holders(SHOP, tmp_path)) == ["books_source", "songs_source"]
    finally:
        for each in (one, two):
            each.kill()
            each.communicate()
    assert list(holders(SHOP, tmp_path)) == []


def test_a_wait_ends_with_the_process_and_frees_what_it_had(tmp_path):
    target = ConnectionLimit(name="a target", file="shop-1", slots=1, field="f")

    def leaving() -> None:
        raise InterruptedError("the worker leaves")

    with slots_taken([target], tmp_path, "films_to_shop", 1):
        with (
            pytest.raises(InterruptedError),
            slots_taken([SHOP, target], tmp_path, "books_to_shop", 30, waiting=leaving),
        ):
            pass
        assert list(holders(SHOP, tmp_path)) == []


def test_a_connection_and_each_of_its_targets_have_limits_of_their_own():
    assert limits_of(connection(), "shop", "films") == ()
    settings = connection(max_concurrency=3, max_concurrency_per_target=1)
    whole, films = limits_of(settings, "shop", "films")
    assert (whole.slots, films.slots) == (3, 1)
    assert limits_of(settings, "shop", "books")[1].file != films.file
    assert limits_of(settings, "shop") == (whole,), "a source has no target"
    assert limits_of(settings, None) == ()


@pytest.mark.parametrize("value", [0, -1, 1_001, "many", 1.5])
def test_a_limit_is_a_number_of_steps(value):
    for field in ("max_concurrency", "max_concurrency_per_target"):
        with pytest.raises(ValidationError, match=field):
            connection(**{field: value})
