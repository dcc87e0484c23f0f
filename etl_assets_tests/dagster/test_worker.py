"""What a worker does next, and what it leaves alone: its loop on real files, with steps that only say how
they ended.
"""

from __future__ import annotations

import datetime as dt
import errno
import json
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from etl_assets.errors import CommitConflict, DomainUnavailable, EngineLost, InputError, SourceUnreadable
from etl_assets.pipelines.stage import Stage
from etl_assets.resources.cancellation import cancel_on_interrupt
from etl_assets.settings import LandingSettings, RunSettings, Settings, WorkerSettings
from etl_assets.sources.unread_days import Watched
from etl_assets.steps.step import StepReport
from etl_assets.steps.table_queue import TableQueue
from etl_assets.worker import pauses, source_look
from etl_assets.worker import step_runner as crews
from etl_assets.worker.lease import Lease
from etl_assets.worker.step_runner import StepOutcome, StepRunner
from etl_assets.worker.worker import Feed, Session, Worker
from etl_assets_tests.reference.written_tables import write_table

DAY, BAD_DAY = dt.date(2026, 1, 5), dt.date(2026, 1, 6)
Ending = Mapping[dt.date | None, Exception] | Exception


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        home=tmp_path,
        landing=LandingSettings(settle_seconds=0),
        runs=RunSettings(retry_delay_seconds=0, max_retries=2),
        worker=WorkerSettings(batch_interval_seconds=0.05, derived_interval_seconds=3_600),
    )


@pytest.fixture
def follow(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, tuple]]]:
    """Follows for some looks at the landing folder; tells which steps were run for which days."""

    def follow(
        endings: Mapping[str, Ending], looks: int = 1, failures: dict | None = None
    ) -> list[tuple[str, tuple]]:
        failures = {} if failures is None else failures
        ran: list[tuple[str, tuple]] = []
        left = [looks]

        def run(crew: StepRunner, table: str, days: Sequence[dt.date]) -> StepOutcome:
            ran.append((table, tuple(days)))
            ending = endings.get(table, {})
            if isinstance(ending, Exception):
                raise ending
            failed = {day: error for day, error in ending.items() if day is None or day in days}
            report = StepReport(table=table, version=1, counts={day: Counter() for day in days}, commits=1)
            return StepOutcome(began=0.0, report=None if None in failed else report, failed=failed)

        def look(worker: Worker, feed: Feed) -> tuple[dt.date, ...]:
            backoffs = worker._failures.backoffs.by_thing
            failures.update({thing: pause.failures for thing, pause in backoffs.items()})
            if left[0] == 0:
                worker._end_with(KeyboardInterrupt())
                return ()
            left[0] -= 1
            return days_to_carry(worker, feed)

        days_to_carry = Worker._days_to_carry
        monkeypatch.setattr(StepRunner, "run", run)
        monkeypatch.setattr(Worker, "_days_to_carry", look)
        monkeypatch.setattr(Session, "__call__", lambda session: None)
        Worker(settings, lambda event: None).run()
        return ran

    return follow


def land(settings: Settings, *days: dt.date) -> None:
    for day in days:
        file = settings.landing_path / day.isoformat() / "a.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}\n")


def alerts(settings: Settings) -> list[dict[str, str]]:
    file = settings.home / "alerts.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_without_new_files_no_step_is_run(follow):
    assert follow({}, looks=3) == []


def test_days_with_new_files_go_all_the_way_together(follow, settings):
    land(settings, DAY, BAD_DAY)
    both = (DAY, BAD_DAY)
    assert follow({}) == [
        ("customers", both),
        ("raw_events", both),
        ("normalized_orders", both),
        ("warehouse_rows", both),
    ]


SUPPLIERS = """
name: suppliers
source: {type: files, path: "in/*.jsonl", settle_seconds: 0}
columns: {id: bigint}
table: {keys: [id]}
"""


def declare_suppliers(settings: Settings) -> None:
    for folder in ("in", "pipelines"):
        (settings.home / folder).mkdir(exist_ok=True)
    (settings.home / "in" / "a.jsonl").write_text('{"id": 1}\n')
    (settings.home / "pipelines" / "suppliers.yaml").write_text(SUPPLIERS)


def test_a_pipeline_that_is_declared_while_it_follows_is_followed(follow, settings, monkeypatch):
    land(settings, DAY)
    day = dt.datetime.now(dt.UTC).date()
    take_up = Worker._take_up_declarations

    def declared_later(worker: Worker) -> None:
        declare_suppliers(settings)
        take_up(worker)

    monkeypatch.setattr(Worker, "_take_up_declarations", declared_later)
    ran = follow({}, looks=2)
    assert ("suppliers_source", (day,)) in ran
    assert ("suppliers", (day,)) in ran


def test_it_gives_a_sign_of_life_with_each_step(follow, settings, monkeypatch):
    land(settings, DAY)
    signs: list[Lease] = []
    monkeypatch.setattr(Lease, "alive", lambda held: signs.append(held))
    assert len(follow({})) <= len(signs)


def test_a_day_whose_data_is_bad_is_told_of_and_left_alone_while_the_others_go_on(follow, settings):
    land(settings, DAY, BAD_DAY)
    broken = SourceUnreadable("b.jsonl cannot be read", fix="write it again")
    ran = follow({"raw_events": {BAD_DAY: broken}}, looks=2)
    assert ran[2:4] == [("normalized_orders", (DAY,)), ("warehouse_rows", (DAY,))]
    assert ran[4:6] == [("customers", (DAY,)), ("raw_events", (DAY,))]
    (alert,) = alerts(settings)
    assert alert["kind"] == "RunFailed"
    assert (alert["job"], alert["step"]) == ("worker", "raw_events")
    assert alert["partition"] == f"{BAD_DAY}..{BAD_DAY}"
    assert alert["error"] == "SourceUnreadable: b.jsonl cannot be read\n  fix: write it again"


def test_what_fails_whatever_the_day_ends_the_micro_batch_and_is_tried_again_later(follow, settings):
    land(settings, DAY)
    away = DomainUnavailable("the disk is away", fix="bring it back")
    assert follow({"normalized_orders": {None: away}}, looks=3) == [
        ("customers", (DAY,)),
        ("raw_events", (DAY,)),
        ("normalized_orders", (DAY,)),
    ]
    assert len(alerts(settings)) == 1


@pytest.mark.parametrize("table", ["raw_events", "normalized_orders", "warehouse_rows"])
def test_a_day_that_goes_wrong_anywhere_on_its_way_is_left_alone_longer_each_time(
    follow, settings, table, monkeypatch
):
    monkeypatch.setattr(pauses, "FIRST_SECONDS", 0.0)
    land(settings, DAY)
    failures: dict = {}
    follow({table: {DAY: SourceUnreadable("it is broken", fix="mend it")}}, looks=3, failures=failures)
    assert failures == {("raw_events", DAY): 3}


def test_with_customers_that_are_wrong_events_still_arrive_and_are_not_normalized(follow, settings):
    land(settings, DAY)
    ran = follow({"customers": {None: InputError("the header lacks a column", fix="add it")}}, looks=2)
    assert [table for table, _ in ran] == ["customers", "raw_events", "raw_events"]


def test_a_lost_engine_ends_the_process(follow, settings):
    land(settings, DAY)
    with pytest.raises(EngineLost):
        follow({"raw_events": EngineLost("it is gone", fix="start again")})


def test_an_error_that_nothing_expects_lets_its_pipeline_back_off_and_the_others_go_on(
    follow, settings, monkeypatch
):
    land(settings, DAY)
    declare_suppliers(settings)
    look_at = source_look.watch_source

    def look(stage: Stage, *args: Any, **options: Any) -> Watched:
        if stage.name == "raw_events":
            raise ZeroDivisionError("a fault of the code")
        return look_at(stage, *args, **options)

    monkeypatch.setattr(source_look, "watch_source", look)
    failures: dict = {}
    ran = follow({}, looks=6, failures=failures)
    assert {table for table, _ in ran} == {"suppliers_source", "suppliers"}
    assert failures == {("raw_events", None): 1}
    (alert,) = alerts(settings)
    assert alert["error"].startswith("ZeroDivisionError: a fault of the code\n  fix: ")


def normalize_one_of_two(settings: Settings, cursors: Mapping[str, int]) -> None:
    (domain,) = settings.placement().domains
    write_table(domain, "raw_events", [{"partition_date": DAY, "batch_id": 0}] * 2)
    write_table(domain, "normalized_orders", [{"partition_date": DAY, "batch_id": 0}], cursors)
    write_table(
        domain,
        "warehouse_rows",
        [{"partition_date": DAY, "batch_id": 0}],
        {f"normalized_orders/{DAY}": 0},
    )


def test_a_day_that_has_not_come_all_the_way_breaks_no_invariant(settings):
    normalize_one_of_two(settings, cursors={})
    told: list = []
    worker = Worker(settings, told.append)
    for minute in range(3):
        worker._invariants.check(60.0 * minute, worker._feeds, worker._behind)
    worker._reports.tell()
    assert (told, alerts(settings)) == ([], [])


def test_an_invariant_that_stays_broken_is_one_alert(settings):
    normalize_one_of_two(settings, cursors={f"raw_events/{DAY}": 0})
    worker, seen = Worker(settings, lambda event: None), []
    for minute in range(4):
        worker._invariants.check(60.0 * minute, worker._feeds, worker._behind)
        seen.append([alert["step"] for alert in alerts(settings) if "nothing_lost" in alert["error"]])
    assert seen == [[], ["normalized_orders"], ["normalized_orders"], ["normalized_orders"]]


def test_a_pipeline_that_is_behind_keeps_no_invariant_of_another_from_being_evaluated(settings, monkeypatch):
    declared = {
        "name": "visits",
        "source": {"type": "files", "path": "in/*.csv"},
        "columns": {"id": "string"},
        "table": {"keys": ["id"]},
    }
    (settings.home / "pipelines").mkdir(parents=True)
    (settings.home / "pipelines" / "visits.yaml").write_text(json.dumps(declared), "utf-8")
    normalize_one_of_two(settings, cursors={f"raw_events/{DAY}": 0})
    worker = Worker(settings, lambda event: None)
    monkeypatch.setattr(worker, "_behind", lambda: {"visits": (DAY,)})
    for minute in range(2):
        worker._invariants.check(60.0 * minute, worker._feeds, worker._behind)
    assert {alert["step"] for alert in alerts(settings)} == {"normalized_orders"}


@pytest.mark.parametrize("looking", ["watch_source", "days_behind", "Reports.check"])
def test_an_error_of_the_disk_where_it_only_looks_does_not_end_it(follow, settings, monkeypatch, looking):
    def fail(*_args: Any, **_options: Any) -> NoReturn:
        raise OSError(errno.EIO, "Input/output error")

    land(settings, DAY)
    module = "source_look" if looking == "watch_source" else "worker"
    monkeypatch.setattr(f"etl_assets.worker.{module}.{looking}", fail)
    carried = (
        []
        if looking == "watch_source"
        else ["customers", "raw_events", "normalized_orders", "warehouse_rows"]
    )
    assert [table for table, _ in follow({})] == carried


class Spark:
    """Has one job at a time, which ends when it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def interruptAll(self) -> None:
        self.cancelled.set()

    def job(self) -> None:
        """Wait for an answer as PySpark does, in py4j; be told to leave meanwhile."""
        answer = {"__name__": "py4j.clientserver", "cancelled": self.cancelled, "leave": leave}
        exec("leave()\ncancelled.wait(10)", answer)
        raise type("Py4JJavaError", (Exception,), {})("Job 0 cancelled as part of cancellation of all jobs")


def leave() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("days", [(DAY,), (DAY, BAD_DAY)])
def test_told_to_leave_while_spark_works_it_blames_no_day_and_begins_nothing_more(
    settings, monkeypatch, days
):
    land(settings, *days)
    spark: Any = Spark()
    began = []

    def step_of(table: str, *_args: Any, **_options: Any) -> Any:
        def run(keys: Sequence[dt.date]) -> StepReport:
            began.append((table, tuple(keys)))
            if table == "raw_events":
                spark.job()
            return StepReport(table=table, version=1)

        return SimpleNamespace(run=run)

    monkeypatch.setattr(crews, "step_of", step_of)

    def session_on(session: Session) -> None:
        session.made = spark
        cancel_on_interrupt(spark)

    monkeypatch.setattr(Session, "__call__", session_on)
    Worker(settings, lambda event: None).run()
    assert began == [("customers", ()), ("raw_events", days)]
    assert alerts(settings) == []


def test_while_another_run_is_at_a_table_it_gives_signs_of_life_and_can_leave(settings, monkeypatch):
    land(settings, DAY)
    signs: list[str] = []

    def alive(_lease: Lease) -> None:
        signs.append("alive")
        if len(signs) == 5:
            signal.raise_signal(signal.SIGTERM)

    ran: list[str] = []

    def step_of(table: str, *_args: Any, **_options: Any) -> Any:
        return SimpleNamespace(run=lambda keys: ran.append(table) or StepReport(table=table, version=1))

    monkeypatch.setattr(crews, "step_of", step_of)
    monkeypatch.setattr(Session, "__call__", lambda session: None)
    monkeypatch.setattr(Lease, "alive", alive)
    # The only thread waits, so it gives all signs of life.
    alone = settings.model_copy(update={"worker": settings.worker.model_copy(update={"parallel": 1})})
    with held_elsewhere(settings, "raw_events"):
        Worker(alone, lambda event: None).run()
    assert ran == ["customers"]
    assert len(signs) >= 5
    assert alerts(settings) == []


@pytest.mark.parametrize("leaves", [False, True])
def test_a_crew_waits_for_its_turn_unless_it_is_to_leave(settings, monkeypatch, leaves):
    ran, waited = threading.Event(), threading.Event()

    def step_of(table: str, *_args: Any, **_options: Any) -> Any:
        return SimpleNamespace(run=lambda keys: ran.set() or StepReport(table=table, version=1))

    monkeypatch.setattr(crews, "step_of", step_of)
    crew = StepRunner(
        settings=settings,
        session=no_session,
        renew=no_session,
        wait=lambda seconds: None,
        leaving=lambda: leaves and waited.is_set(),
        alive=waited.set,
    )
    done: list[StepOutcome] = []
    thread = threading.Thread(target=lambda: done.append(crew.run("raw_events", [DAY])))
    with held_elsewhere(settings, "raw_events"):
        thread.start()
        assert waited.wait(30)
        assert not ran.is_set()
        if leaves:
            thread.join(30)
    thread.join(30)
    assert ran.is_set() is not leaves
    assert (done[0].report is None) is leaves


@contextmanager
def held_elsewhere(settings: Settings, table: str) -> Generator[None]:
    """The turn at a table is somebody else's."""
    began, end = threading.Event(), threading.Event()

    def hold() -> None:
        with TableQueue(folder=settings.turns_path).take(table):
            began.set()
            end.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert began.wait(30)
    try:
        yield
    finally:
        end.set()
        thread.join()


def no_session() -> Any:
    raise AssertionError("no step of these tests asks for Spark")


class Attempts:
    """A crew whose attempts end as told, one after the other; the last one for ever."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch, *endings: Exception | None):
        self.made, self.renewed = 0, 0

        def attempt(crew: StepRunner, table: str, days: Sequence[dt.date], began: float) -> StepOutcome:
            ending = endings[min(self.made, len(endings) - 1)]
            self.made += 1
            if ending is not None:
                raise ending
            return StepOutcome(began=began, report=StepReport(table=table, version=1))

        def renew() -> None:
            self.renewed += 1

        monkeypatch.setattr(StepRunner, "_attempt", attempt)
        self.crew = StepRunner(
            settings=settings,
            session=no_session,
            renew=renew,
            wait=lambda seconds: None,
            leaving=lambda: False,
        )

    def done(self) -> StepOutcome:
        return self.crew.run("raw_events", [DAY])


CONFLICT = CommitConflict("another commit came in between", fix="again")
LOST = type("SparkConnectGrpcException", (Exception,), {})("the server went away")


def test_a_conflict_with_another_writer_is_tried_again_at_once(settings, monkeypatch):
    attempts = Attempts(settings, monkeypatch, CONFLICT, CONFLICT, None)
    assert attempts.done().report is not None
    assert attempts.made == 3


def test_no_more_often_than_a_run_would(settings, monkeypatch):
    attempts = Attempts(settings, monkeypatch, CONFLICT)
    assert attempts.done().failed == {None: CONFLICT}
    assert attempts.made == 1 + settings.runs.max_retries


def test_what_needs_somebody_is_not_tried_again(settings, monkeypatch):
    attempts = Attempts(settings, monkeypatch, OSError(28, "No space left on device"))
    assert attempts.done().report is None
    assert attempts.made == 1


def test_a_connection_that_is_lost_gets_a_new_session(settings, monkeypatch):
    attempts = Attempts(settings, monkeypatch, LOST, None)
    assert attempts.done().report is not None
    assert attempts.renewed == 1


@pytest.fixture(params=["/proc", "/nowhere"])
def driver(request, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen]:
    """What is taken for the engine, also on a system that tells less of its processes."""
    monkeypatch.setattr("etl_assets.processes._PROC", Path(request.param))
    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr("etl_assets.delta.session._started_driver", lambda: process)
        yield process
        process.kill()


def test_an_engine_that_is_gone_is_told_as_such_whatever_the_error(settings, monkeypatch, driver):
    attempts = Attempts(settings, monkeypatch, LOST)
    os.kill(driver.pid, signal.SIGKILL)
    os.waitid(os.P_PID, driver.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(EngineLost, match=f"process {driver.pid}"):
        attempts.done()


def test_an_engine_that_is_there_is_not_to_blame(settings, monkeypatch, driver):
    attempts = Attempts(settings, monkeypatch, CONFLICT, None)
    assert attempts.done().report is not None


def test_days_left_behind_back_off_also_while_their_source_is_paused(settings):
    worker = Worker(settings, lambda event: None)
    feed = worker._feeds[0]
    worker._failed(feed.path[0], [BAD_DAY], {BAD_DAY: InputError("no", fix="-")})
    feed.left_behind = frozenset({DAY, BAD_DAY})
    assert worker._left_behind(feed) == (DAY,)
