"""A process killed by SIGKILL at any failpoint, and the same work done again: the tables of a run that nobody
killed.
"""

from __future__ import annotations

import multiprocessing
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from etl_assets.failpoints import Failpoint
from etl_assets.steps.compact import Compact, extent
from etl_assets_tests.kill import dying_run
from etl_assets_tests.kill.test_kill_of_upkeep import UPKEEP
from etl_assets_tests.pipeline import DAY, NEXT_DAY, Pipeline, event
from etl_assets_tests.reference.tables import ALL_TABLES

SINKS, SOURCES, CONTROL = (Path(__file__).parents[1] / name for name in ("sinks", "sources", "control"))

pytestmark = [pytest.mark.spark, pytest.mark.kill]

DAYS = [DAY, NEXT_DAY]
WRITES = {
    "customers": ("customers",),
    "raw_events": ("raw_events_exceptions", "raw_events"),
    "normalized_orders": ("normalized_orders_exceptions", "normalized_orders"),
    "warehouse_rows": ("warehouse_rows",),
    "order_status_view": ("order_status_view",),
    "dead_letters": ("dead_letters",),
    "audit_log": ("audit_log",),
}
"""The tables that each step writes, in the order of the data path and of the step."""

BEFORE_THE_COMMIT = [
    ("raw_events", [f"{Failpoint.STAGE_AFTER_WRITE}@raw_events"]),
    ("normalized_orders", [f"{Failpoint.STAGE_AFTER_WRITE}@normalized_orders"]),
    *(
        (
            step,
            [f"{Failpoint.EXCEPTIONS_BEFORE_COMMIT}@{step}", f"{Failpoint.EXCEPTIONS_AFTER_COMMIT}@{step}"],
        )
        for step in ("raw_events", "normalized_orders")
    ),
]
AT_THE_COMMIT = [
    (step, [f"{Failpoint.TABLE_BEFORE_COMMIT}@{table}"])
    for step, tables in WRITES.items()
    for table in tables
]
AFTER_EACH_COMMIT = [
    f"{Failpoint.TABLE_AFTER_COMMIT}@{table}" for tables in WRITES.values() for table in tables
]
AFTER_THE_COMMIT = [
    ("raw_events", [f"{Failpoint.TABLE_AFTER_SYNC}@raw_events"]),
    ("order_status_view", [f"{Failpoint.TABLE_AFTER_SYNC}@order_status_view"]),
    ("raw_events", [Failpoint.LEDGER_BEFORE_WRITE, Failpoint.LEDGER_AFTER_WRITE]),
]
IN_THE_MIDDLE_OF_A_WRITE = [
    ("raw_events", f"{Failpoint.TABLE_DURING_COMMIT}@raw_events"),
    ("order_status_view", f"{Failpoint.TABLE_DURING_COMMIT}@order_status_view"),
]
BETWEEN_WRITES = [*BEFORE_THE_COMMIT, *AT_THE_COMMIT, *AFTER_THE_COMMIT]


@dataclass(frozen=True, kw_only=True)
class Undisturbed:
    """A run that nobody killed: its input, the root as it was before each step, and the tables it gave."""

    landing: Path
    before: dict[str, Path]
    tables: dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def undisturbed(engine, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    session = engine.spark_session.newSession()
    pipeline = Pipeline(root=folder / "data", landing=folder / "landing", session=lambda: session)
    reference = folder / "landing" / "_reference" / "customers.csv"
    reference.parent.mkdir(parents=True)
    reference.write_text("customer_id,customer_region\ncustomer-1,north\n")
    paid = event(1, event_id="paid-1", event_type="PaymentProcessed", payload={"amount": 3})
    pipeline.land([event(1), event(1), event(2, tenant_id="other"), "not json", event(2), paid])
    pipeline.land(
        [
            event(1),
            event(3, day=NEXT_DAY),
            event(4, day=NEXT_DAY, payload={"amount": "-1"}),
            '{"event_id": "cut',
        ],
        day=NEXT_DAY,
    )
    pipeline.root.mkdir()
    before = {}
    for step in WRITES:
        before[step] = folder / f"before_{step}"
        shutil.copytree(pipeline.root, before[step])
        pipeline.run(DAYS, only=[step])
    return Undisturbed(landing=pipeline.landing, before=before, tables=_tables(pipeline))


@pytest.fixture(scope="module")
def processes() -> Any:
    """Processes that begin with everything imported, and with no JVM or thread of this one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["pyspark.sql.functions", "deltalake", "pyarrow", "etl_assets_tests.kill.dying_run"]
    )
    return context


@pytest.fixture
def kill(processes: Any, spark) -> Callable[..., None]:
    """Runs a step (None: all) in a process of its own, which must die at the failpoint."""
    attached = dying_run.Gateway.of(spark)

    def kill(
        pipeline: Pipeline,
        step: str | None,
        failpoint: str,
        *,
        with_its_jvm: bool = False,
        run: Callable[..., None] = dying_run.run,
    ) -> None:
        gateway = None if with_its_jvm else attached
        process = processes.Process(
            target=run, args=(pipeline.root, pipeline.landing, step, str(failpoint), gateway)
        )
        process.start()
        process.join(120)
        assert process.exitcode == -9, f"the process did not die at {failpoint}: exit code {process.exitcode}"

    return kill


@pytest.fixture
def platform(pipeline: Pipeline, undisturbed: Undisturbed) -> Callable[[str], Pipeline]:
    """The platform as it is before a step, on the input of the undisturbed run."""

    def at(step: str) -> Pipeline:
        shutil.copytree(undisturbed.before[step], pipeline.root)
        return Pipeline(root=pipeline.root, landing=undisturbed.landing, session=pipeline.session)

    return at


def _tables(pipeline: Pipeline, names: Sequence[str] = tuple(t.name for t in ALL_TABLES)) -> dict[str, Any]:
    """Rows without the commit they came with, in an order that is theirs."""
    return {
        name: sorted(
            ({key: value for key, value in row.items() if key != "batch_id"} for row in pipeline.rows(name)),
            key=repr,
        )
        for name in names
    }


def named(text: str) -> set[str]:
    """Names and values of failpoints in the text of tests."""
    return set(re.findall(r"[A-Z][A-Z_]+|(?:sink|search|webhook|run)\.[a-z_]+", text))


def _name(value: Any) -> str:
    return value if isinstance(value, str) else "+".join(map(str, value))


def test_every_failpoint_is_covered():
    of_sinks = [point for point in Failpoint if point.startswith(("sink.", "search.", "webhook.", "replay."))]
    tests_of_sinks = "".join(file.read_text("utf-8") for file in SINKS.glob("test_*.py"))
    assert [point for point in of_sinks if not {point.name, point.value} & named(tests_of_sinks)] == []
    of_sources = [point for point in Failpoint if point.startswith(("source.", "spool.", "capture."))]
    tests_of_sources = "".join(file.read_text("utf-8") for file in SOURCES.glob("test_*.py"))
    assert [point for point in of_sources if point.name not in named(tests_of_sources)] == []
    of_runs = [point for point in Failpoint if point.startswith("run.")]
    tests_of_runs = "".join(file.read_text("utf-8") for file in CONTROL.glob("test_*.py"))
    assert [point for point in of_runs if point.value not in named(tests_of_runs)] == []
    used = [*of_sinks, *of_sources, *of_runs, *(point for _, points in BETWEEN_WRITES for point in points)]
    used += [*AFTER_EACH_COMMIT, *(point for _, point in IN_THE_MIDDLE_OF_A_WRITE)]
    used += UPKEEP
    assert {str(point).partition("@")[0] for point in used} == {str(point) for point in Failpoint}


@pytest.mark.parametrize(("step", "failpoints"), BETWEEN_WRITES, ids=_name)
def test_a_step_killed_and_run_again_gives_the_tables_of_an_undisturbed_run(
    undisturbed, platform, kill, step, failpoints
):
    pipeline = platform(step)
    for failpoint in failpoints:
        kill(pipeline, step, failpoint)
    pipeline.run(DAYS, only=[step])
    assert _tables(pipeline, WRITES[step]) == {name: undisturbed.tables[name] for name in WRITES[step]}
    assert pipeline.run(DAYS, only=[step])[step].commits == 0


def test_a_compaction_killed_before_in_and_after_its_commit_is_finished_by_the_next(pipeline, kill):
    for number in range(2):
        pipeline.land([event(number)], name=f"{number}.jsonl")
        pipeline.run([DAY], only=["raw_events"])
    table, rows = pipeline.context.table("raw_events"), sorted(map(str, pipeline.rows("raw_events")))
    before = extent(table)
    assert before.files == 2
    kill(pipeline, "raw_events", f"{Failpoint.TABLE_BEFORE_COMMIT}@raw_events", run=dying_run.compact)
    assert extent(table) == before
    kill(pipeline, "raw_events", f"{Failpoint.TABLE_DURING_COMMIT}@raw_events", run=dying_run.compact)
    assert extent(table) == before
    kill(pipeline, "raw_events", f"{Failpoint.TABLE_AFTER_COMMIT}@raw_events", run=dying_run.compact)
    was, now = Compact(context=pipeline.context, table="raw_events").run()
    assert was == now
    assert (now.files, now.version) == (1, before.version + 1)
    assert sorted(map(str, pipeline.rows("raw_events"))) == rows
    assert pipeline.run([DAY], only=["raw_events"])["raw_events"].commits == 0


@pytest.mark.slow
@pytest.mark.parametrize(("step", "failpoint"), IN_THE_MIDDLE_OF_A_WRITE, ids=_name)
def test_a_write_torn_in_the_middle_leaves_nothing_that_counts(undisturbed, platform, kill, step, failpoint):
    pipeline = platform(step)
    before = pipeline.context.table(step).version()
    kill(pipeline, step, failpoint, with_its_jvm=True)
    table = pipeline.context.table(step)
    assert table.version() == max(before, 0)
    assert list(table.path.rglob("*.parquet")), "it died before it wrote anything"
    pipeline.run(DAYS, only=[step])
    assert _tables(pipeline, WRITES[step]) == {name: undisturbed.tables[name] for name in WRITES[step]}


@pytest.mark.slow
@pytest.mark.timeout(900)  # nine processes, each of which begins the data path again
def test_a_run_killed_after_each_of_its_commits_gives_the_tables_of_an_undisturbed_run(
    undisturbed, platform, kill
):
    pipeline = platform("customers")
    for failpoint in AFTER_EACH_COMMIT:
        kill(pipeline, None, failpoint)
    pipeline.run(DAYS)
    assert _tables(pipeline) == undisturbed.tables
    assert all(report.commits == 0 for report in pipeline.run(DAYS).values())
