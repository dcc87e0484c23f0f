"""What failed is left alone for a while, longer each time; the rest goes on."""

from __future__ import annotations

import datetime as dt
import errno

import pytest

from etl_assets.errors import DomainUnavailable, SettingsError, SourceUnreadable
from etl_assets.worker.pauses import (
    FIRST_SECONDS,
    MAX_PASSING_SECONDS,
    MAX_SECONDS,
    Backoffs,
)

BAD, GOOD = ("raw_events", dt.date(2026, 1, 5)), ("raw_events", dt.date(2026, 1, 6))
SPLIT = SourceUnreadable("it is broken", fix="write it again")


def test_what_failed_is_left_alone_and_the_rest_is_not():
    pauses = Backoffs().failed([BAD], SPLIT, now=100.0)
    assert pauses.ready([BAD, GOOD], now=100.0) == (GOOD,)
    assert pauses.ready([BAD, GOOD], now=100.0 + FIRST_SECONDS) == (BAD, GOOD)


@pytest.mark.parametrize(
    ("error", "longest"),
    [
        (SPLIT, MAX_SECONDS),
        (SettingsError("it is wrong", fix="mend it"), MAX_SECONDS),
        (DomainUnavailable("it is away", fix="wait"), MAX_PASSING_SECONDS),
        (OSError(errno.ENOSPC, "No space left on device"), MAX_PASSING_SECONDS),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_failure_in_a_row_doubles_the_pause_up_to_a_bound(error, longest):
    pauses, waits = Backoffs(), []
    for _ in range(40):
        pauses = pauses.failed([BAD], error, now=0.0)
        waits.append(pauses.by_thing[BAD].until)
    assert waits[:2] == [FIRST_SECONDS, 2 * FIRST_SECONDS]
    assert waits == sorted(waits)
    assert waits[-1] == longest


def test_success_forgets_the_failures():
    pauses = Backoffs().failed([BAD], SPLIT, now=0.0).failed([BAD], SPLIT, now=0.0)
    pauses = pauses.succeeded([BAD])
    assert pauses.ready([BAD], now=0.0) == (BAD,)
    assert pauses.failed([BAD], SPLIT, now=0.0).by_thing[BAD].until == FIRST_SECONDS
