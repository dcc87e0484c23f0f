"""Dead letters of sinks whose rows are rejected again, or cannot be requested any more, by real targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from etl_assets.contracts.reasons import DeadLetterState
from etl_assets.contracts.tables.dead_letters import DEAD_LETTERS
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.records import commit_rows
from etl_assets.failpoints import Failpoint
from etl_assets.observability.dead_letters import DeadLetter
from etl_assets.sinks.replay_requests import content_of_request
from etl_assets.sources.replays import row_again, submit_replays
from etl_assets.steps.step import ReadMode
from etl_assets_tests.reference.webhook_receiver import ReceiverProcess
from etl_assets_tests.sinks.test_replays_reach_sinks import BAD, ReplayLab, Target, _postgres


@pytest.fixture
def hooks() -> Iterator[ReceiverProcess]:
    server = ReceiverProcess()
    yield server
    server.close()


@pytest.fixture
def lab(tmp_path, hooks) -> ReplayLab:
    connection = {"type": "webhook", "url": hooks.url, "write": ["films"]}
    sink = {"type": "webhook", "path": "films"}
    return ReplayLab(tmp_path / "home", Target(connection, sink, dict, lambda _: None))


def new_letters(lab: ReplayLab) -> list[str]:
    """The ids of the dead letters that are no attempts of others."""
    return [row["exception_id"] for row in lab.rows(f"{lab.step}_rejects") if row["source"] == lab.step]


def last_call(hooks: ReceiverProcess) -> dict[str, Any]:
    return hooks.state()["headers"][-1]


def refuse(hooks: ReceiverProcess, *keys: int) -> None:
    hooks.mode(refused={str(key): 422 for key in keys})


def discard(lab: ReplayLab, letter_id: str) -> None:
    """Commit the row that `dead-letters discard` makes of a dead letter, without Spark."""
    (row,) = [row for row in lab.rows(f"{lab.step}_rejects") if row["exception_id"] == letter_id]
    table = lab.lab.table(DEAD_LETTERS.name)
    ensure_table(table)
    version = table.version()
    names = ("stage", "reason", "record", "source", "source_position", "partition_date", "failed_at")
    letter = {name: row[name] for name in names} | {
        "dead_letter_id": letter_id,
        "attempts": 1,
        "state": DeadLetterState.DISCARDED.value,
        "batch_id": version + 1,
    }
    commit_rows(table, [letter], base_version=version)


def rejected_row(lab: ReplayLab, hooks: ReceiverProcess, key: int) -> DeadLetter:
    refuse(hooks, key)
    lab.lab.write([(key, "bad")])
    lab.deliver()
    return lab.letters()[key]


def test_a_row_that_is_rejected_again_after_its_replay_is_a_dead_letter_again(lab, hooks):
    letter = rejected_row(lab, hooks, 1)
    for number in (1, 2):
        refuse(hooks)
        lab.request(replace(letter, dead_letter_id=new_letters(lab)[-1]))
        lab.deliver()
        assert hooks.state()["rows"].keys() == {"1"}
        refuse(hooks, 1)
        lab.deliver(ReadMode.WHOLE)
        lab.deliver(ReadMode.WHOLE)
        assert len(set(new_letters(lab))) == len(new_letters(lab)) == number + 1, "one, not one a delivery"


def test_a_row_that_is_rejected_again_after_its_dead_letter_was_discarded_is_a_dead_letter_again(lab, hooks):
    rejected_row(lab, hooks, 1)
    for number in (1, 2):
        discard(lab, new_letters(lab)[-1])
        lab.deliver(ReadMode.WHOLE)
        lab.deliver(ReadMode.WHOLE)
        assert len(set(new_letters(lab))) == len(new_letters(lab)) == number + 1, "one, not one a delivery"
    assert hooks.state()["rows"] == {}


def test_a_replay_changes_the_row_that_the_receiver_had_before_a_delivery_that_was_killed(lab, hooks):
    lab.lab.write([(1, "Alien")])
    lab.deliver()
    assert last_call(hooks)["method"] == "POST"
    refuse(hooks, 1)
    lab.lab.write([(1, "bad")])
    lab.die(f"{Failpoint.EXCEPTIONS_AFTER_COMMIT}@{lab.step}")
    lab.deliver()
    refuse(hooks)
    lab.request(lab.letters()[1])
    lab.deliver()
    assert (last_call(hooks)["method"], last_call(hooks)["etl-assets-change"]) == ("PUT", "changed")


def test_a_row_that_a_replay_did_not_bring_either_is_still_new(lab, hooks):
    letter = rejected_row(lab, hooks, 1)
    lab.request(letter)
    lab.deliver()
    assert [each[:2] for each in lab.results(letter)] == [("rejected", 2)]
    assert last_call(hooks)["method"] == "POST"
    refuse(hooks)
    rejected_at = lab.rows(f"{lab.step}_rejects")[-1]["failed_at"]
    lab.request(replace(letter, attempts=2, failed_at=rejected_at))
    lab.deliver()
    assert (last_call(hooks)["method"], last_call(hooks)["etl-assets-change"]) == ("POST", "new")


def test_a_request_without_the_keys_of_today_gets_a_result_and_the_others_are_delivered(lab, hooks):
    letter, other = rejected_row(lab, hooks, 1), rejected_row(lab, hooks, 2)
    refuse(hooks)
    content = content_of_request({"old_id": 1}, letter.failed_at, "anna")
    request = row_again(letter.partition_date, letter.dead_letter_id, 2, content, stage=lab.step)
    submit_replays(lab.lab.settings.placement().domains[0], [request])
    lab.request(other)
    lab.die(f"{Failpoint.TABLE_BEFORE_COMMIT}@{lab.step}")
    lab.deliver()
    ((outcome, attempt, words),) = lab.results(letter)
    assert (outcome, attempt) == ("rejected", 2)
    assert words.startswith("not delivered, it lacks the keys that films has now: ")
    (row,) = [row for row in lab.rows(f"{lab.step}_rejects") if row["error"] == words]
    assert (row["record"], row["reason"]) == (letter.record, letter.reason)
    assert [each[:2] for each in lab.results(other)] == [("replayed", 2)]
    assert hooks.state()["rows"].keys() == {"2"}


def test_what_a_killed_process_was_refused_is_not_replayed_although_no_delivery_is_recorded(
    request, tmp_path
):
    lab = ReplayLab(tmp_path / "home", _postgres(request))
    unrecorded = f"{Failpoint.TABLE_BEFORE_COMMIT}@{lab.step}"
    lab.lab.write([(1, "Alien"), (2, BAD)])
    lab.die(unrecorded)
    letter = lab.letters()[2]
    lab.request(letter)
    lab.die(unrecorded)
    lab.lab.write([(3, "Brazil")])
    lab.deliver()
    assert [each[:2] for each in lab.results(letter)] == [("rejected", 2)]
