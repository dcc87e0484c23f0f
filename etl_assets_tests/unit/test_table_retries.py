"""What ends an error of a captured table, and when the next attempt is due."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etl_assets import errors
from etl_assets.sources.captures.confirmation import TableProgress, confirmable
from etl_assets.sources.captures.phases import TablePhase
from etl_assets.sources.captures.table_retries import (
    FIRST_PAUSE_SECONDS,
    HOLDS_LOG_SECONDS,
    MAX_PAUSE_SECONDS,
    RULES,
    Attempts,
    FoundBy,
    TableRetry,
    retry_of,
)
from etl_assets.sources.captures.table_states import CapturedTableState

FILM = CapturedTableState(
    capture="shop", table="public.film", pipeline="shop_film", oid=7, phase=TablePhase.READY, keys=("id",)
)
AWAY = errors.SourceUnavailable("away", fix="start it", source="shop", sqlstate="53300")
LOST = errors.SourceLost("gone", fix="copy it", source="shop", lost="the log")


@pytest.mark.parametrize(
    ("error", "found_by", "retry"),
    [
        (AWAY, FoundBy.STEP, TableRetry.TIMED),
        (errors.SourceRefused("no right", fix="GRANT", source="s"), FoundBy.STEP, TableRetry.MANUAL),
        (errors.SourceRefused("no key", fix="add one", source="s"), FoundBy.DISCOVERY, TableRetry.TIMED),
        (errors.SourceRefused("lacks the key", fix="copy", source="s"), FoundBy.READER, TableRetry.NONE),
        (errors.MessageMalformed("odd", fix="see", kind="R", offset=0), FoundBy.STEP, TableRetry.MANUAL),
        (errors.MessageMalformed("odd", fix="see", kind="R", offset=0), FoundBy.READER, TableRetry.NONE),
        (LOST, FoundBy.STEP, TableRetry.NONE),
        (LOST, FoundBy.READER, TableRetry.NONE),
    ],
)
def test_an_error_has_one_policy(error, found_by, retry):
    assert retry_of(error, found_by) is retry


def test_every_rule_names_errors_that_exist_and_every_error_has_one():
    assert {name for rule in RULES for name in rule.names} <= set(vars(errors))
    assert all(retry_of(errors.EtlAssetsError("e", fix="f"), each) for each in FoundBy)


def test_pauses_double_up_to_the_longest_and_begin_anew_after_a_long_time_without_a_failure():
    attempts, now, pauses = None, 0.0, []
    for _ in range(9):
        attempts = Attempts.failed(attempts, now)
        pauses.append(attempts.next_at - now)
        now = attempts.next_at
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert attempts is not None
    assert (attempts.number, attempts.since) == (9, 0.0)
    later = Attempts.failed(attempts, now + 2 * MAX_PAUSE_SECONDS + 1)
    assert (later.number, later.next_at - later.since) == (1, FIRST_PAUSE_SECONDS)


def test_a_table_is_tried_again_when_it_is_due_and_its_attempts_are_counted():
    failed = FILM.failed_by(AWAY, FoundBy.STEP, 1_000.0)
    assert (failed.phase, failed.ended_by()) == (
        TablePhase.ERRORED,
        "by itself, attempt 2 at 1970-01-01T00:16:45+00:00;"
        " at once: etl-assets cdc rollback shop public.film",
    )
    assert failed.attempted(1_004.9) is failed
    tried = failed.attempted(1_005.0)
    assert (tried.phase, tried.error, tried.attempts) == (TablePhase.READY, None, failed.attempts)
    again = tried.failed_by(AWAY, FoundBy.STEP, 1_006.0)
    assert again.attempts == Attempts(number=2, since=1_000.0, next_at=1_016.0)
    assert again.rolled_back().attempts is None
    assert again.copied_again(9).attempts is None
    assert CapturedTableState.of(again.as_json()) == again


def test_what_discovery_found_is_tried_by_discoveries_alone():
    found = FILM.failed_by(errors.SourceRefused("no key", fix="k", source="s"), FoundBy.DISCOVERY, 1_000.0)
    assert found.attempts is None
    assert found.attempted(1e12) is found
    assert "at the next discovery" in found.ended_by()


def test_an_error_after_which_changes_are_missing_is_not_ended_by_a_later_one():
    twice = FILM.failed_by(LOST, FoundBy.STEP, 0.0).failed_by(AWAY, FoundBy.STEP, 1.0)
    assert twice.error is not None
    assert (twice.error.retry, twice.error.needs_copy, twice.attempts) == (TableRetry.NONE, True, None)
    assert twice.ended_by() == (
        "etl-assets cdc rollback shop public.film --copy; or leave the table out: `exclude` in the capture"
    )


def test_a_table_that_is_tried_again_holds_the_log_back_only_for_some_time():
    failed = FILM.failed_by(AWAY, FoundBy.STEP, 1_000.0)
    until = 1_000.0 + HOLDS_LOG_SECONDS
    assert FILM.holds_log(until)
    assert failed.holds_log(until - 1)
    assert not failed.holds_log(until)
    assert not failed.attempted(until).holds_log(until)  # while it is tried it does not flap
    assert not FILM.failed("why", "do").holds_log(1_000.0)


def test_what_the_server_may_have_forgotten_stays_noted_after_the_error_has_ended():
    tables = [
        TableProgress(committed_lsn=10, unread_lsn=40),
        TableProgress(committed_lsn=10, unread_lsn=85),  # the server has them
        TableProgress(committed_lsn=10, unread_lsn=85, was_only_spooled=True),
        TableProgress(committed_lsn=90, was_only_spooled=True),
    ]
    found = confirmable(tables, 90, 1_000, confirmed_lsn=80)
    assert (found.lsn, found.only_spooled) == (80, frozenset({0, 2}))


def test_a_state_of_an_earlier_release_that_has_to_be_copied_still_has_to_be():
    content = FILM.failed("gone", "copy it").as_json()
    del content["attempts"]
    del content["error"]["name"]
    found = CapturedTableState.of(content | {"error": content["error"] | {"needs_copy": True}})
    assert found == replace(FILM.failed("gone", "copy it", TableRetry.NONE))
