"""`etl-assets dead-letters`, as far as it goes without Spark: finding letters, handing them in, judging the
result.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import os

import pytest
from click.testing import CliRunner

from etl_assets.cli import dead_letters as cli
from etl_assets.cli import replay
from etl_assets.errors import EtlAssetsError, InputError, NotFound
from etl_assets.observability.dead_letters import find_letters
from etl_assets.observability.submit_replays import ReplayResult, hand_in, outcomes
from etl_assets.settings import load_settings
from etl_assets.sources.replays import event_again, replayed_events, submit_replays
from etl_assets_tests.reference.written_tables import DAY, NOON, write_table

A, B, C = "a" * 64, "ab" * 32, "c" * 64


@pytest.fixture
def domain(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return load_settings().placement().domains[0]


def write_letters(domain, *letters):
    common = {
        "stage": "ingest",
        "reason": "MalformedJson",
        "record": "{",
        "record_encoding": "utf-8",
        "source": "landing",
        "source_position": f"{DAY}/f.jsonl:1",
        "attempts": 1,
        "state": "open",
        "failed_at": NOON,
    }
    write_table(domain, "dead_letters", [{**common, **letter} for letter in letters])


def rewrite_letters(domain, *letters):
    """Put letters in place of those written before."""
    for file in (domain.table_path("dead_letters") / "_delta_log").iterdir():
        file.unlink()
    write_letters(domain, *letters)


def run(*arguments: str, code: int = 0):
    result = CliRunner().invoke(cli.dead_letters, arguments)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def listed(*options: str) -> list[str]:
    return [letter["dead_letter_id"] for letter in json.loads(run("list", "--json", *options).stdout)]


def letter_of(domain, letter_id=A):
    (letter,) = find_letters(domain, [letter_id])
    return letter


def replay_file(domain, stage: str, attempt: int = 2, letter_id: str = A):
    return domain.replays_path(stage) / DAY.isoformat() / f"{letter_id}.{attempt}.jsonl"


def test_an_installation_without_letters_says_so(domain, tmp_path):
    (tmp_path / "landing").mkdir()
    assert run("list").stdout == "no open dead letters\n"
    assert listed() == []


def test_the_newest_open_letters_come_first(domain):
    later = NOON + dt.timedelta(hours=1)
    write_letters(
        domain,
        {"dead_letter_id": A},
        {"dead_letter_id": B, "failed_at": later},
        {"dead_letter_id": C, "state": "discarded"},
    )
    assert listed() == [B, A]
    assert set(listed("--state", "all")) == {A, B, C}
    assert listed("--state", "discarded") == [C]
    result = run("list", "--limit", "1", "--json")
    assert len(json.loads(result.stdout)) == 1
    assert "1 of 2 are shown" in result.stderr


def test_letters_are_chosen_by_stage_reason_and_day(domain):
    write_letters(
        domain,
        {"dead_letter_id": A, "reason": "InvalidPayload", "stage": "normalize"},
        {"dead_letter_id": B, "partition_date": DAY - dt.timedelta(days=1)},
    )
    assert listed("--reason", "InvalidPayload") == listed("--stage", "normalize") == [A]
    assert listed("--day", "2026-02-28") == [B]
    assert listed("--day", "2026-02-28", "--stage", "normalize") == []


def test_letters_are_chosen_by_the_time_at_which_they_were_refused(domain):
    write_letters(
        domain,
        {"dead_letter_id": A},
        {"dead_letter_id": B, "failed_at": NOON + dt.timedelta(hours=1)},
        {"dead_letter_id": C, "failed_at": NOON + dt.timedelta(days=1)},
    )
    assert listed("--since", "2026-03-01T13:00") == [C, B]
    assert listed("--until", "2026-03-01T13:00") == [A]
    assert listed("--since", "2026-03-01T12:00:01", "--until", "2026-03-02") == [B]
    result = run("list", "--since", "2026-03-01T12:30", "--limit", "1", "--json")
    assert "1 of 2 are shown" in result.stderr


def write_pipelines(tmp_path):
    """Two pipelines, each with a sink."""
    (tmp_path / "platform.yaml").write_text("connections: {marts: {type: duckdb, path: m.db, write: ['*']}}")
    (tmp_path / "pipelines").mkdir()
    for name in ("films", "shops"):
        (tmp_path / "pipelines" / f"{name}.yaml").write_text(
            f"name: {name}\nsource: {{type: files, path: 'in/*.jsonl', id: [id]}}\ncolumns: {{id: bigint}}\n"
            f"table: {{keys: [id]}}\nsinks: [{{type: duckdb, connection: marts, table: {name}}}]\n"
        )


def test_letters_are_chosen_by_the_sink_of_any_pipeline(domain, tmp_path):
    write_pipelines(tmp_path)
    write_letters(
        domain,
        {"dead_letter_id": A, "stage": "films_to_duckdb"},
        {"dead_letter_id": B, "stage": "shops_to_duckdb", "failed_at": NOON + dt.timedelta(hours=1)},
        {"dead_letter_id": C},
    )
    assert listed("--sink", "duckdb") == [B, A]
    assert listed("--sink", "films_to_duckdb") == [A]
    assert "'nobody' is no sink: duckdb" in run("list", "--sink", "nobody", code=2).stderr
    both = run("list", "--sink", "duckdb", "--stage", "shops_to_duckdb", code=2)
    assert "take one of them" in both.stderr


def test_one_id_on_two_days_is_one_letter(domain):
    # A row that a target rejected again on another day had the same id before.
    write_letters(domain, {"dead_letter_id": A}, {"dead_letter_id": A, "partition_date": DAY.replace(day=2)})
    assert json.loads(run("show", A[:12], "--json").stdout)["dead_letter_id"] == A


def test_an_error_text_is_never_taken_for_markup(domain):
    write_letters(domain, {"dead_letter_id": A, "error": "[bold]x[/nothing]"})
    assert "[bold]x[/nothing]" in run("list").stdout


@pytest.mark.parametrize(
    "options", [("--reason", "Nonsense"), ("--state", "lost"), ("--day", "1.3.2026"), ("--limit", "-1")]
)
def test_a_wrong_option_is_a_wrong_call(domain, options):
    run("list", *options, code=2)


def test_a_unique_beginning_is_an_id(domain):
    write_letters(domain, {"dead_letter_id": A}, {"dead_letter_id": B})
    assert json.loads(run("show", "aa", "--json").stdout)["dead_letter_id"] == A
    with pytest.raises(NotFound, match="2 dead letters start with 'a'"):
        find_letters(domain, ["a"])
    for unknown in ("f00d", "not hex", "' OR 1=1"):
        with pytest.raises(NotFound, match="there is no dead letter"):
            find_letters(domain, [unknown])


def test_the_raw_record_is_what_came_byte_for_byte(domain):
    write_letters(
        domain,
        {
            "dead_letter_id": A,
            "record": base64.b64encode(b'{"\xff": 1}').decode(),
            "record_encoding": "base64",
        },
    )
    assert run("show", "aaaa", "--raw").stdout_bytes == b'{"\xff": 1}\n'


def hand_in_one(domain, letter, correction):
    (handed_in,) = hand_in(domain, [letter], correction)
    return handed_in


def test_a_record_is_handed_in_as_it_came(domain):
    record = base64.b64encode(b"\xffx").decode()
    write_letters(domain, {"dead_letter_id": A, "record": record, "record_encoding": "base64", "attempts": 3})
    handed_in = hand_in_one(domain, letter_of(domain), None)
    assert (handed_in.attempt, handed_in.day, handed_in.is_new) == (4, DAY, True)
    assert replay_file(domain, "ingest", attempt=4).read_bytes() == b"\xffx\n"


def test_a_corrected_record_takes_the_place_of_the_refused_one(domain):
    write_letters(domain, {"dead_letter_id": A})
    hand_in_one(domain, letter_of(domain), b'{"event_id": "e"}\n')
    assert replay_file(domain, "ingest").read_bytes() == b'{"event_id": "e"}\n'


def test_a_corrected_payload_may_be_written_over_many_lines(domain):
    write_letters(domain, {"dead_letter_id": A, "stage": "normalize", "event_id": "e"})
    hand_in_one(domain, letter_of(domain), b'{\n "b": 1,\n "a": 2\n}\n')
    (event,) = replayed_events(domain, [DAY])
    assert (event.event_id, event.payload) == ("e", '{"a":2,"b":1}')
    assert event.source_position == f"{DAY}/{A}.2.jsonl:1"


def test_the_last_correction_holds_for_an_attempt_without_one(domain):
    submit_replays(domain, [event_again(DAY, A, 9, "e", b'{"a": 1}')])
    submit_replays(domain, [event_again(DAY, A, 10, "e", None)])
    (event,) = replayed_events(domain, [DAY])
    assert (event.payload, event.source_position) == ('{"a":1}', f"{DAY}/{A}.10.jsonl:1")


@pytest.mark.parametrize(
    ("letter", "correction", "says"),
    [
        ({"state": "discarded"}, None, "is discarded, not open"),
        ({"state": "replayed"}, b"{}", "is replayed, not open"),
        ({"reason": "RecordTooLarge"}, None, "only the beginning"),
        ({"record": None}, None, "no record to hand in"),
        ({}, b" \n", "no record to hand in"),
        ({}, b"{\n}", "one line"),
        ({"stage": "commit"}, None, "no pipeline of this installation has that"),
        ({"stage": "normalize", "event_id": "e"}, b"[1]", "no JSON object"),
        ({"stage": "normalize", "event_id": "e"}, b"{", "refused"),
        ({"stage": "normalize", "event_id": "e"}, b'{"event_id": "e", "payload": {}}', "whole event"),
    ],
)
def test_what_cannot_be_handed_in_is_refused_and_nothing_is_written(domain, letter, correction, says):
    write_letters(domain, {"dead_letter_id": A, **letter})
    with pytest.raises(InputError, match=says):
        hand_in_one(domain, letter_of(domain), correction)
    assert not (domain.root / "replays").exists()


def test_an_attempt_that_was_judged_in_a_run_that_died_is_not_handed_in_again(domain):
    write_letters(domain, {"dead_letter_id": A})
    write_table(
        domain,
        "raw_events",
        [{"source": "dead_letters", "source_position": f"{DAY}/{A}.2.jsonl:1", "event_id": "e"}],
    )
    assert not hand_in_one(domain, letter_of(domain), b'{"event_id": "other"}').is_new
    assert not replay_file(domain, "ingest").exists()


def result_of(domain, before: dict, after: dict):
    write_letters(domain, {"dead_letter_id": A, **before})
    handed_in = hand_in_one(domain, letter_of(domain), None)
    rewrite_letters(domain, {"dead_letter_id": A, **before, **after})
    (result,) = outcomes(domain, [handed_in])
    return result


def test_a_closed_letter_is_replayed_under_the_id_of_the_event(domain):
    position = f"{DAY}/{A}.2.jsonl:1"
    write_letters(domain, {"dead_letter_id": A})
    handed_in = hand_in_one(domain, letter_of(domain), b'{"event_id": "e"}')
    write_table(
        domain, "raw_events", [{"source": "dead_letters", "source_position": position, "event_id": "e"}]
    )
    rewrite_letters(domain, {"dead_letter_id": A, "state": "replayed", "attempts": 2})
    (result,) = outcomes(domain, [handed_in])
    assert (result.result, result.event_id, result.attempt) == (ReplayResult.REPLAYED, "e", 2)


def test_a_letter_that_is_refused_again_tells_the_new_reason_and_stage(domain):
    after = {"attempts": 2, "stage": "normalize", "reason": "InvalidPayload", "error": "no amount"}
    result = result_of(domain, {}, after)
    assert (result.result, result.stage, result.reason) == (
        ReplayResult.REFUSED,
        "normalize",
        "InvalidPayload",
    )


def test_an_attempt_that_normalize_has_refused_is_not_handed_in_again(domain):
    write_letters(domain, {"dead_letter_id": A, "stage": "normalize", "event_id": "e"})
    position = f"{DAY}/{A}.2.jsonl:1"
    write_table(
        domain,
        "normalized_orders_exceptions",
        [{"source": "dead_letters", "source_position": position, "event_id": "e", "outcome": "rejected"}],
    )
    assert not hand_in_one(domain, letter_of(domain), b'{"amount": 1}').is_new
    assert not replay_file(domain, "normalize").exists()


@pytest.mark.parametrize("state", ["open", "replayed"])
def test_a_letter_whose_event_is_known_is_a_duplicate(domain, state):
    write_table(
        domain,
        "raw_events_exceptions",
        [
            {
                "source": "dead_letters",
                "source_position": f"{DAY}/{A}.2.jsonl:1",
                "outcome": "duplicate",
                "original_offset": 7,
            }
        ],
    )
    write_letters(domain, {"dead_letter_id": A})
    handed_in = hand_in_one(domain, letter_of(domain), None)
    assert not handed_in.is_new
    rewrite_letters(domain, {"dead_letter_id": A, "state": state, "attempts": 2})
    (result,) = outcomes(domain, [handed_in])
    assert result.result == ReplayResult.DUPLICATE
    assert "offset 7" in (result.error or "")


def test_a_letter_that_no_run_has_read_is_waiting(domain):
    assert result_of(domain, {}, {}).result == ReplayResult.WAITING


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("aaaa", "--all-open"),
        ("aaaa", "--reason", "MalformedJson"),
        ("aaaa", "bbbb", "--record", __file__),
        ("--all-open", "--record", __file__),
        ("aaaa", "--record", "/nowhere"),
    ],
)
def test_a_replay_that_does_not_say_what_is_a_wrong_call(domain, arguments):
    run("replay", *arguments, code=2)


@pytest.mark.parametrize(("size", "taken"), [(2_048, True), (2_049, False), (1 << 40, False)])
def test_of_a_corrected_record_no_more_is_read_than_is_taken(tmp_path, size, taken):
    file = tmp_path / "fixed.json"
    file.write_bytes(b"x" * min(size, 2_049))
    if taken:
        file.write_bytes(file.read_bytes() + b"\r\n")
        assert replay._read_record(file, 2_048) == b"x" * 2_048 + b"\r\n"
    else:
        os.truncate(file, size)
        with pytest.raises(InputError, match="has more than the 2,048 bytes"):
            replay._read_record(file, 2_048)


def test_a_letter_before_the_first_partition_is_refused_before_anything_is_written(domain, tmp_path):
    (tmp_path / "platform.yaml").write_text("start_date: 2026-04-01\n")
    write_letters(domain, {"dead_letter_id": A})
    result = CliRunner().invoke(cli.dead_letters, ["replay", "aaaa"])
    assert isinstance(result.exception, EtlAssetsError)
    assert "partitions for 2026-03-01" in str(result.exception)
    assert not (domain.root / "replays").exists()


def test_all_open_letters_leave_out_those_that_cannot_be_replayed(domain, monkeypatch):
    write_letters(
        domain,
        {"dead_letter_id": A, "reason": "RecordTooLarge"},
        {"dead_letter_id": "d" * 64, "stage": "removed"},
        {"dead_letter_id": B},
        {"dead_letter_id": C, "state": "replayed"},
    )
    ran = []
    monkeypatch.setattr(replay, "_run", lambda settings, handed_in: ran.extend(handed_in))
    result = run("replay", "--all-open", "--json", code=1)
    assert [each.letter.dead_letter_id for each in ran] == [B]
    assert json.loads(result.stdout)[0]["result"] == "waiting"
    assert "aaaaaaaaaaaa is left out: its record was cut off" in result.stderr
    assert "dddddddddddd is left out: no pipeline" in result.stderr
    assert letter_of(domain, "d" * 64).is_open


def test_a_letter_before_the_first_partition_stops_no_other(domain, tmp_path, monkeypatch):
    (tmp_path / "platform.yaml").write_text(f"start_date: {DAY}\n")
    early = DAY - dt.timedelta(days=1)
    write_letters(
        domain,
        {"dead_letter_id": A, "partition_date": early, "source_position": f"{early}/f.jsonl:1"},
        {"dead_letter_id": B},
    )
    ran = []
    monkeypatch.setattr(replay, "_run", lambda settings, handed_in: ran.extend(handed_in))
    result = run("replay", "--all-open", "--json", code=1)
    assert [each.letter.dead_letter_id for each in ran] == [B]
    assert [each["result"] for each in json.loads(result.stdout)] == ["waiting"]
    assert (
        f"aaaaaaaaaaaa is left out: there are no partitions for {early}: they start on {DAY};"
        f" set start_date to {early} or earlier in the platform file"
    ) in result.stderr
    assert not replay_file(domain, "ingest").exists()
    assert letter_of(domain).is_open


def test_a_letter_whose_row_lacks_the_keys_of_today_stops_no_other(domain, tmp_path, monkeypatch):
    write_pipelines(tmp_path)
    common = {"stage": "films_to_duckdb", "reason": "RefusedByTarget", "source": "films_to_duckdb"}
    write_letters(
        domain,
        {**common, "dead_letter_id": A, "record": '{"old_id": 1}'},
        {**common, "dead_letter_id": B, "record": '{"id": 2}'},
    )
    ran = []
    monkeypatch.setattr(replay, "_run", lambda settings, handed_in: ran.extend(handed_in))
    result = run("replay", "--all-open", "--json", code=1)
    assert [each.letter.dead_letter_id for each in ran] == [B]
    assert [each["result"] for each in json.loads(result.stdout)] == ["waiting"]
    assert "aaaaaaaaaaaa is left out: the dead letter aaaaaaaaaaaa lacks keys of films" in result.stderr
    assert "; materialize films_to_duckdb in the Dagster UI" in result.stderr
    one = CliRunner().invoke(cli.dead_letters, ["replay", "aaaa"])
    assert "lacks keys of films" in str(one.exception)


def test_a_letter_of_a_removed_pipeline_is_shown_and_not_replayed(domain):
    write_letters(domain, {"dead_letter_id": A, "stage": "removed"})
    assert json.loads(run("show", "aaaa", "--json").stdout)["stage"] == "removed"
    result = CliRunner().invoke(cli.dead_letters, ["replay", "aaaa"])
    assert isinstance(result.exception, InputError)
    assert "of the stage removed, and no pipeline of this installation has that" in str(result.exception)


def test_a_failed_run_says_that_the_letters_stay_handed_in(domain, monkeypatch):
    write_letters(domain, {"dead_letter_id": A})

    def fail(settings, handed_in):
        raise EtlAssetsError("the run failed", fix="look")

    monkeypatch.setattr(replay, "_run", fail)
    result = CliRunner().invoke(cli.dead_letters, ["replay", "aaaa"])
    assert "look; the letters stay handed in" in str(result.exception)


@pytest.mark.parametrize("arguments", [("--reason", "x"), ("aaaa",), ("aaaa", "--reason", " ")])
def test_a_discard_needs_letters_and_a_reason(domain, arguments):
    run("discard", *arguments, code=2)


def test_only_open_letters_are_discarded(domain):
    write_letters(domain, {"dead_letter_id": A, "state": "replayed"})
    result = CliRunner().invoke(cli.dead_letters, ["discard", "aaaa", "--reason", "x"])
    assert "is replayed, not open" in str(result.exception)
