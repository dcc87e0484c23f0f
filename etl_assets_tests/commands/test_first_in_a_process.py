"""Every command and every step as the first thing that a fresh process does: on a complete installation, and
behind a kill.

A process that has a Spark session already, as most tests have, cannot find what only works with one.
`MATRIX=full` adds combinations, and the marker `full` tests, that the gate has no time for.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable

import pytest

from etl_assets_tests.commands.expected import (
    DAY,
    NEXT_DAY,
    TABLES,
    event,
    land,
    lines,
    tables,
)
from etl_assets_tests.commands.home import Home, Running, StepOutcome

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(1200)]

FULL = os.environ.get("MATRIX") == "full"
KILLED = -signal.SIGKILL
START = {"start_date": DAY}
ROOTS = ("a", "b", "c")
UNDONE = ("dead_letters", "warehouse_rows", "order_status_view", "audit_log")
"""Tables that a reprocess takes rows out of, and makes them again, besides normalized_orders."""
LAST_OF_A_STEP = (
    "customers",
    "raw_events",
    "normalized_orders",
    "dead_letters",
    "warehouse_rows",
    "audit_log",
)
"""Behind each of them another step is the first of the next process."""
THREE_DOMAINS = {"domains": [{"name": f"rack/{name}", "root": name} for name in ROOTS]}


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Home]:
    """Makes home folders: new ones, or copies of another one."""
    folder = tmp_path_factory.mktemp("homes")
    numbers = iter(range(1_000_000))

    def make(of: Home | None = None) -> Home:
        path = folder / f"home{next(numbers)}"
        return Home(path=path) if of is None else of.copy(path)

    return make


@pytest.fixture(scope="module")
def complete(homes) -> Home:
    """An installation that has read everything; copy it to change it."""
    home = land(homes().begin(**START))
    succeeded(home.call("run"))
    return home


@pytest.fixture(scope="module")
def before_normalize(homes) -> Home:
    """An installation whose only run was killed behind raw_events."""
    home = land(homes().begin(**START))
    died(home.call("run", failpoint="table.after_commit@raw_events"))
    return home


def succeeded(done: StepOutcome, *said: str) -> StepOutcome:
    return ended(done, 0, *said)


def failed(done: StepOutcome, *said: str) -> StepOutcome:
    return ended(done, 1, *said)


def died(done: StepOutcome) -> None:
    ended(done, KILLED)


def ended(done: StepOutcome, code: int, *said: str) -> StepOutcome:
    """A command that has ended with this exit code, has said this, and nothing of its own inside."""
    text = done.out + done.err
    missing = [each for each in said if each not in text]
    if done.code != code or missing or "Traceback (most" in text or "AssertionError" in text:
        pytest.fail(f"expected exit code {code} and {missing or 'nothing else'}:\n{done}", pytrace=False)
    return done


def nothing_is_left(home: Home) -> None:
    succeeded(home.call("run"), "nothing to do")
    assert not home.alerts()


# Runs


@pytest.mark.parametrize(
    "killed_behind",
    [
        pytest.param(LAST_OF_A_STEP, id="the last table of each step"),
        pytest.param(TABLES, id="every table", marks=pytest.mark.full),
    ],
)
def test_a_run_killed_behind_each_table_is_finished_by_the_next_one(homes, complete, killed_behind):
    """Each run begins, in a process of its own, with the step that comes after the table of the kill
    before.
    """
    home = land(homes().begin(**START))
    for table in killed_behind:
        died(home.call("run", failpoint=f"table.after_commit@{table}"))
        kept = {name: len(home.rows(name)) for name in TABLES}
        assert kept[table] == len(complete.rows(table)), f"{table} was committed before the kill"
    done = home.call("run")
    succeeded(done)
    assert tables(home) == tables(complete)
    nothing_is_left(home)


@pytest.mark.full
def test_a_run_killed_behind_raw_events_is_finished_by_a_run(homes, before_normalize, complete):
    home = homes(before_normalize)
    succeeded(home.call("run"), "left undone: ", "normalized_orders")
    assert tables(home) == tables(complete)
    nothing_is_left(home)


def test_a_worker_finishes_what_a_killed_run_left_and_ends_by_sigterm(homes, before_normalize):
    home = homes(before_normalize)
    worker = home.start("worker")
    try:
        home.land(NEXT_DAY, "b.jsonl", lines(event(9, NEXT_DAY)))
        until(lambda: len(home.rows("warehouse_rows")) == 5, "the new event is in the warehouse", worker)
        os.kill(worker.process.pid, signal.SIGTERM)
        succeeded(worker.ended(60))
    finally:
        worker.sweep()
    succeeded(home.call("run"))  # what is made of warehouse_rows may not have been its turn yet
    assert sum(row["event_id"] == "event-9" for row in home.rows("audit_log")) == 3
    nothing_is_left(home)


def until(reached: Callable[[], bool], what: str, running: Running, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert running.process.poll() is None, f"it has ended before {what}:\n{running.err[-4000:]}"
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{running.err[-4000:]}"
        time.sleep(1)


@pytest.mark.full
def test_each_asset_is_materialized_alone_in_a_process_of_its_own(homes):
    """By Dagster's own command, each the first and only step of its process."""
    whole = land(homes().begin(**START), days=1)
    succeeded(whole.call("run"))
    home = land(homes().begin(**START), days=1)
    (home.path / "dagster").mkdir()
    for name in TABLES:
        if name.endswith("_exceptions"):
            continue  # tables of the stages before them
        partition = () if name in ("customers", "order_status_view") else ("--partition", DAY)
        arguments = ("asset", "materialize", "-m", "etl_assets.definitions", "--select", name, *partition)
        succeeded(home.call(*arguments, program="dagster"))
        assert len(home.rows(name)) == len(whole.rows(name)), name
    assert tables(home) == tables(whole)


# Demo


def test_a_demo_that_was_killed_is_finished_by_the_next_one(homes):
    home = homes().begin()
    arguments = ("demo", "--events", "60", "--days", "2", "--json")
    died(home.call(*arguments, failpoint="table.after_commit@raw_events"))
    figures = json.loads(succeeded(home.call(*arguments)).out)
    assert len(home.rows("normalized_orders")) == len(home.rows("warehouse_rows")) > 0
    assert sum(figures["orders_by_status"].values()) == len(home.rows("order_status_view")) > 0
    events = {row["event_id"] for row in home.rows("raw_events", ["event_id"])}
    refused = {row["event_id"] for row in home.rows("normalized_orders_exceptions", ["event_id"])}
    assert {row["event_id"] for row in home.rows("normalized_orders", ["event_id"])} == events - refused
    again = json.loads(succeeded(home.call(*arguments)).out)
    assert again["lines_read"] == 0
    assert again["orders_by_status"] == figures["orders_by_status"]
    nothing_is_left(home)


# Undo


@pytest.mark.full
def test_reprocess_makes_again_what_it_has_taken_out(homes, complete):
    home = homes(complete)
    days = ("--from", DAY, "--to", NEXT_DAY)
    succeeded(home.call("reprocess", *days), "nothing was changed")
    assert tables(home) == tables(complete)
    succeeded(home.call("reprocess", *days, "--yes"))
    assert tables(home, undone=True) == tables(complete, undone=True)
    nothing_is_left(home)


@pytest.mark.parametrize("table", ["normalized_orders", *(UNDONE if FULL else ())])
def test_what_a_killed_reprocess_has_taken_out_is_made_by_the_same_command(homes, complete, table):
    home = homes(complete)
    arguments = ("reprocess", "--from", DAY, "--to", NEXT_DAY, "--yes")
    died(home.call(*arguments, failpoint=f"table.after_commit@{table}"))
    succeeded(home.call(*arguments))
    assert tables(home, undone=True) == tables(complete, undone=True)
    nothing_is_left(home)


def test_a_run_makes_again_what_a_restore_has_taken_back(homes, complete):
    home = homes(complete)
    version = ("tables", "restore", "normalized_orders", "--to-version", "0")
    succeeded(home.call(*version), "nothing was changed")
    assert tables(home) == tables(complete)
    succeeded(home.call(*version, "--yes", "--no-run"), "done: ")
    assert home.rows("warehouse_rows") == []
    succeeded(home.call(*version, "--yes", "--no-run"), "nothing to do")
    succeeded(home.call("run"), "left undone: ")
    assert tables(home, undone=True) == tables(complete, undone=True)
    nothing_is_left(home)


# Dead letters


def letter(home: Home, **wanted: str) -> str:
    """The id of the one dead letter that is like this."""
    (found,) = (row for row in home.rows("dead_letters") if wanted.items() <= row.items())
    return found["dead_letter_id"]


@pytest.mark.full
def test_a_dead_letter_of_normalize_is_replayed_and_one_that_is_refused_again_stays_open(homes, complete):
    home = homes(complete)
    wanted, unknown = (letter(home, stage="normalize", event_id=f"event-{number}") for number in (5, 8))
    corrected = home.path / "corrected.json"
    corrected.write_text('{"customer_id": "customer-1", "amount": "5.50"}', "utf-8")
    succeeded(home.call("dead-letters", "replay", wanted, "--record", str(corrected)), "replayed")
    (row,) = (row for row in home.rows("warehouse_rows") if row["event_id"] == "event-5")
    assert (str(row["amount"]), row["customer_region"]) == ("5.50", "north")
    assert letter(home, stage="normalize", event_id="event-5", state="replayed") == wanted
    failed(home.call("dead-letters", "replay", wanted), "is replayed, not open")
    failed(home.call("dead-letters", "replay", unknown), "refused", "UnknownEventType")
    (row,) = (row for row in home.rows("dead_letters") if row["dead_letter_id"] == unknown)
    assert (row["state"], row["attempts"]) == ("open", 2)
    nothing_is_left(home)


@pytest.mark.full
def test_a_dead_letter_of_ingest_is_replayed(homes, complete):
    home = homes(complete)
    wanted = letter(home, stage="ingest", reason="MalformedJson")
    corrected = home.path / "corrected.json"
    corrected.write_text(json.dumps(event(9)), "utf-8")
    succeeded(home.call("dead-letters", "replay", wanted, "--record", str(corrected)), "replayed")
    assert "event-9" in {row["event_id"] for row in home.rows("warehouse_rows")}
    assert letter(home, stage="ingest", reason="MalformedJson", state="replayed") == wanted
    nothing_is_left(home)


# What starts no Spark


def test_commands_that_look_and_keep_house_leave_a_complete_installation_as_it_is(homes, complete):
    """One after another in one home, each in a process of its own."""
    home = homes(complete)
    before = tables(home)
    assert json.loads(succeeded(home.call("run", "--json"), "nothing to do").out) == {}
    succeeded(home.call("doctor"))
    succeeded(home.call("tables"), "raw_events")
    assert {each["name"] for each in json.loads(succeeded(home.call("tables", "--json")).out)} >= set(TABLES)
    succeeded(home.call("trace", "event-1"), f"{DAY}/a.jsonl")
    failed(home.call("trace", "event-99"))
    succeeded(home.call("dead-letters", "list"), "MalformedJson", "ContractViolation")
    unreadable = letter(home, reason="MalformedJson")
    assert (
        succeeded(home.call("dead-letters", "show", unreadable, "--raw")).out.strip() == '{"event_id": "cut'
    )
    succeeded(home.call("effects", "list"))
    failed(home.call("domains", "list"), "local")  # losing the one domain there is would lose everything
    succeeded(home.call("domains", "probe", "local"))
    for name in TABLES if FULL else ("raw_events", "warehouse_rows"):
        succeeded(home.call("tables", "compact", name))
    for command in (("vacuum",), ("vacuum", "--delete"), ("clean-log",), ("clean-log", "--delete")):
        succeeded(home.call("tables", command[0], "raw_events", *command[1:]))
    assert tables(home) == before
    succeeded(home.call("dead-letters", "discard", unreadable, "--reason", "cut off by its producer"))
    assert letter(home, reason="MalformedJson", state="discarded") == unreadable
    nothing_is_left(home)


@pytest.mark.parametrize("command", [("verify",), ("repair", "raw_events")], ids=lambda each: each[0])
def test_commands_for_replicas_say_that_there_are_none(complete, command):
    failed(complete.call("tables", *command), "there is one failure domain: tables have no replicas", "fix: ")


def test_looking_at_an_installation_behind_a_kill_changes_nothing_and_names_what_is_left(
    homes, before_normalize
):
    home = homes(before_normalize)
    before = tables(home)
    succeeded(home.call("tables"), "raw_events")
    done = home.call("doctor", "--json")
    assert "normalized_orders" in done.out, f"doctor reports unfinished work:\n{done}"
    succeeded(home.call("trace", "event-1"), f"{DAY}/a.jsonl")
    succeeded(home.call("dead-letters", "list"))
    assert tables(home) == before


# Three domains


@pytest.mark.full
@pytest.mark.parametrize("table", [*TABLES[2:]] if FULL else ["raw_events"])
def test_three_domains_finish_what_a_kill_left_and_stay_whole(homes, table):
    home = land(homes().begin(**START, **THREE_DOMAINS))
    died(home.call("run", failpoint=f"table.after_commit@{table}"))
    succeeded(home.call("run"), "left undone: ")
    succeeded(home.call("tables", "verify"))
    whole = tables(home, undone=True, root="a")
    assert len(whole["warehouse_rows"]) == 4
    assert [tables(home, undone=True, root=root) for root in ROOTS[1:]] == [whole, whole]
    succeeded(home.call("domains", "list"))
    succeeded(home.call("domains", "fail", "rack/a"))
    succeeded(home.call("reprocess", "--from", DAY, "--to", NEXT_DAY, "--yes"))
    assert tables(home, undone=True, root="b") == whole
    succeeded(home.call("domains", "heal", "rack/a"))
    succeeded(home.call("tables", "repair"))
    succeeded(home.call("tables", "verify"))
    assert tables(home, undone=True, root="a") == whole
    nothing_is_left(home)


@pytest.mark.full
def test_events_that_came_while_nobody_might_transform_are_taken_up_once_that_domain_is_back(homes, complete):
    """Ingest goes on in the domains that may; the next step of the path is the first of its process
    afterwards.
    """
    everywhere = [f"rack/{name}" for name in ROOTS]
    policy = {"ingest": everywhere, "transform": ["rack/c"], "sink": everywhere}
    home = land(homes().begin(**START, **THREE_DOMAINS, placement_policy=policy))
    succeeded(home.call("domains", "fail", "rack/c"))
    failed(home.call("run"), "DomainUnavailable", "rack/c")
    assert len(tables(home, undone=True, root="a")["raw_events"]) == len(complete.rows("raw_events"))
    succeeded(home.call("domains", "heal", "rack/c"))
    succeeded(home.call("run"), "left undone: ", "normalized_orders")
    assert len(tables(home, undone=True, root="c")["warehouse_rows"]) == 4
