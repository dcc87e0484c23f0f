"""What is left of an append when its run is repeated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.io_managers.append_ids import append_of, left_to_append
from etl_assets.io_managers.delta_upsert import _run_id
from etl_assets.io_managers.partition_split import halves

DAYS = ["1", "2", "3", "4"]


def after(*parts: list[str], run: str = "r") -> Any:
    """A table to which a run has appended some parts."""
    ids = {append_of(run, part).app_id for part in parts}
    return SimpleNamespace(transaction_versions=lambda asked: {each: 0 for each in asked if each in ids})


@pytest.mark.parametrize(
    ("appended", "left"),
    [
        ((), [DAYS]),
        ((DAYS,), []),
        ((["1", "2"],), [["3", "4"]]),
        ((["1", "2"], ["4"]), [["3"]]),
        ((["2"],), [["1"], ["3", "4"]]),
        ((["1"], ["2"], ["3"], ["4"]), []),
    ],
)
def test_what_a_run_has_appended_is_left_out(appended: tuple[list[str], ...], left: list[list[str]]):
    assert left_to_append("r", DAYS, after(*appended)) == left


def test_another_run_and_a_new_table_have_nothing():
    assert left_to_append("r", DAYS, after(DAYS, run="other")) == [DAYS]
    assert left_to_append("r", [], after()) == [[]]
    assert left_to_append("r", [], after([])) == []
    assert left_to_append("r", DAYS, None) == [DAYS]


@given(keys=st.lists(st.text(), unique=True, max_size=20), good=st.sets(st.integers(0, 19)), data=st.data())
def test_however_attempts_end_each_partition_is_appended_once(
    keys: list[str], good: set[int], data: st.DataObject
):
    """Attempts that stop after any commit; the last one runs through."""
    done: list[list[str]] = []

    def attempt(part: list[str], stops: int) -> None:
        for each in left_to_append("r", part, after(*done)):
            if len(done) >= stops:
                return
            bad = [key for key in each if keys.index(key) not in good] if stops < 100 else []
            if bad and len(each) > 1:
                for half in halves(each):
                    attempt(list(half), stops)
            elif not bad:
                done.append(list(each))

    for _ in range(3):
        attempt(keys, len(done) + data.draw(st.integers(0, 3)))
    attempt(keys, 1000)
    assert sorted(key for part in done for key in part) == sorted(keys)


def test_a_repetition_is_known_by_the_run_that_it_repeats():
    def context(**run: Any) -> Any:
        return SimpleNamespace(step_context=SimpleNamespace(dagster_run=dg.DagsterRun(job_name="job", **run)))

    first = "5b3a4c6e-0000-4000-8000-000000000001"
    assert _run_id(context(run_id=first)) == first
    again = context(run_id="5b3a4c6e-0000-4000-8000-000000000002", root_run_id=first, parent_run_id=first)
    assert _run_id(again) == first
