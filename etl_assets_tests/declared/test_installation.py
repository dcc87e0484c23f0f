"""Declared pipelines in an installation: one that fails beside others, files that are broken or removed, and
three failure domains.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable

import pytest

from etl_assets_tests.commands.home import Home, Running, StepOutcome
from etl_assets_tests.declared.life import FIRST_DAY, Life
from etl_assets_tests.pipeline import event

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(3600)]

DAY = FIRST_DAY.isoformat()
ROOTS = ("a", "b", "c")
SECONDS = 600.0
LOOK_AFTER_REPLICAS = """
from etl_assets.replicas.reconcile import reconcile_replicas
from etl_assets.settings import load_installation

print(*reconcile_replicas(load_installation().placement()), sep="\\n")
"""
"""What the sensor of failure domains does once a minute."""


def declare(home: Home, name: str, **more: object) -> None:
    content = {
        "name": name,
        "source": {"type": "files", "path": f"in/{name}/*.csv", "id": ["id"], "settle_seconds": 0},
        "columns": {"id": "string", "amount": "bigint"},
        "table": {"keys": ["id"]},
        **more,
    }
    (home.path / "pipelines").mkdir(exist_ok=True)
    (home.path / "pipelines" / f"{name}.yaml").write_text(json.dumps(content), "utf-8")


def land(home: Home, name: str, file: str, *rows: str) -> None:
    folder = home.path / "in" / name
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{file}"
    hidden.write_text("\n".join(["id,amount", *rows, ""]), "utf-8")
    hidden.rename(folder / file)


def order(home: Home, number: int) -> None:
    home.land(DAY, f"{number}.jsonl", json.dumps(event(number, day=FIRST_DAY)) + "\nno event\n")


def ids(home: Home, table: str, column: str = "id") -> set[str]:
    return {row[column] for row in home.rows(table, [column])}


def ended(done: StepOutcome, code: int, *said: str) -> StepOutcome:
    missing = [each for each in said if each not in done.out + done.err]
    assert done.code == code, str(done)
    assert not missing, f"{missing} is not said:\n{done}"
    return done


def until(running: Running, reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not reached():
        assert running.process.poll() is None, f"it has ended:\n{running.err[-3000:]}"
        assert time.monotonic() < deadline, f"not {what}:\n{running.err[-3000:]}"
        time.sleep(0.3)


def follows_beside_one_that_fails(home: Home) -> None:
    """A worker: the bad pipeline backs off and is reported, the others are current."""
    worker = home.start("worker")
    try:
        until(worker, lambda: ids(home, "good") == {"g1"} and len(home.rows("dead_letters")) == 3, "read")
        until(worker, lambda: any("is_small" in each["error"] for each in home.alerts()), "reported")
        land(home, "good", "2.csv", "g3,3")
        order(home, 2)
        until(
            worker,
            lambda: ids(home, "good") == {"g1", "g3"} and len(home.rows("warehouse_rows")) == 2,
            "read beside a pipeline that fails",
        )
        os.kill(worker.process.pid, signal.SIGTERM)
        ended(worker.ended(90), 0)
    finally:
        worker.sweep()
    failures = [each for each in home.alerts() if "is_small" in each["error"]]
    assert len(failures) < 10, "it waits between attempts"
    assert ids(home, "bad_source", "record_id") == {"b1"}
    assert home.rows("bad") == []


def runs_beside_one_that_fails(home: Home) -> None:
    """A run does the same, and says what is wrong."""
    land(home, "good", "3.csv", "g4,4")
    order(home, 3)
    done = ended(home.call("run", seconds=SECONDS), 1, "is_small", "bad")
    assert ids(home, "good") == {"g1", "g3", "g4"}, str(done)
    assert len(home.rows("warehouse_rows")) == 3
    assert len(home.rows("dead_letters")) == 5, "of all pipelines that do not fail"


def looks(home: Home) -> None:
    """Commands that only look."""
    listed = json.loads(ended(home.call("tables", "--json"), 0).out)
    assert {"good", "bad_source", "gone", "raw_events"} <= {each["name"] for each in listed}
    assert "broken" in home.call("pipelines", "list").out
    assert "broken.yaml" in home.call("doctor").out


def goes_on_without_the_files(home: Home) -> None:
    """A pipeline without its file: its dead letters stay, and say why they are not replayed."""
    (home.path / "pipelines" / "gone.yaml").unlink()
    (home.path / "pipelines" / "bad.yaml").unlink()
    (letter,) = [row for row in home.rows("dead_letters") if row["stage"] == "gone"]
    letter_id = letter["dead_letter_id"]
    ended(home.call("dead-letters", "show", letter_id), 0, "much")
    assert letter_id in ended(home.call("dead-letters", "list", "--json"), 0).out
    ended(home.call("dead-letters", "replay", letter_id), 1, "no pipeline of this installation has that")
    ended(
        home.call(
            "reprocess", "--from", DAY, "--to", "2030-01-01", "--tables", "good", "--yes", seconds=SECONDS
        ),
        0,
    )
    assert letter_id in {row["dead_letter_id"] for row in home.rows("dead_letters") if row["state"] == "open"}
    ended(home.call("dead-letters", "discard", letter_id, "--reason", "gone"), 0)
    ended(home.call("run", seconds=SECONDS), 0)
    assert ids(home, "good") == {"g1", "g3", "g4"}


def goes_on_once_a_file_is_back(home: Home) -> None:
    """Its file comes back: everything goes on where it was."""
    declare(home, "gone")
    land(home, "gone", "2.csv", "x3,3")
    ended(home.call("run", seconds=SECONDS), 0)
    assert ids(home, "gone") == {"x1", "x3"}


@pytest.fixture
def home(tmp_path) -> Home:
    """An installation with a pipeline that fails, one that does not, one that will be removed, and a file
    that is broken.
    """
    home = Home(path=tmp_path / "home").begin(start_date=DAY)
    home.landing.mkdir()
    rules = [{"name": "is_small", "condition": "amount < 10", "on_violation": "fail"}]
    declare(home, "bad", transforms=[{"type": "expectations", "rules": rules}])
    declare(home, "good")
    declare(home, "gone")
    (home.path / "pipelines" / "broken.yaml").write_text("name: broken\nsource: {type: nothing}\n", "utf-8")
    land(home, "bad", "1.csv", "b1,10")
    land(home, "good", "1.csv", "g1,1", "g2,much")
    land(home, "gone", "1.csv", "x1,1", "x2,much")
    order(home, 1)
    return home


def test_a_pipeline_that_fails_or_is_broken_keeps_no_other_from_being_current(home):
    follows_beside_one_that_fails(home)
    looks(home)


@pytest.mark.full
def test_a_pipeline_that_fails_or_is_broken_or_removed_keeps_no_other_from_being_current(home):
    follows_beside_one_that_fails(home)
    runs_beside_one_that_fails(home)
    looks(home)
    goes_on_without_the_files(home)
    goes_on_once_a_file_is_back(home)


@pytest.mark.full
def test_without_the_leading_root_runs_go_on_in_another_domain_and_it_is_whole_again_once_it_is_back(
    tmp_path,
):
    domains = [{"name": f"rack/{name}", "root": name} for name in ROOTS]
    life = Life(Home(path=tmp_path / "home"), "domains")
    life.begin(domains=domains)
    life.root = "a"
    try:
        life.round("run")
        (life.home.path / "a").rename(life.home.path / "away")
        life.root = "b"
        life.round("run")
        (life.home.path / "away").rename(life.home.path / "a")
        ended(life.call("run"), 0)
        ended(life.home.call("-c", LOOK_AFTER_REPLICAS, program="python"), 0)
        ended(life.call("tables", "verify"), 0)
        for root in ROOTS:
            life.root = root
            life.compare()
    finally:
        life.end()
