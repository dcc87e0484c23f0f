"""The job that compacts tables: asked for when there is something to do, and told of where people look."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from etl_assets.build import build_definitions
from etl_assets.delta.maintenance import compaction
from etl_assets.delta.table import Table
from etl_assets.errors import TableBusy
from etl_assets.jobs import compaction as job
from etl_assets.jobs.compaction import JOB
from etl_assets.placement.domains import FailureDomain
from etl_assets.resources.spark import SparkResource
from etl_assets.settings import load_settings
from etl_assets.steps.compact import Compact, Extent, extent
from etl_assets_tests.reference.tables import CATALOG
from etl_assets_tests.reference.written_tables import write_table

pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")

NOTHING = Extent(version=0, files=0, bytes=0)
CLOSED = {"partition_date": dt.date(2026, 3, 1)}


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> FailureDomain:
    """The only domain of an empty platform, without Spark."""
    monkeypatch.setattr(SparkResource, "spark_session", property(_no_spark))
    return load_settings().placement().domains[0]


def _no_spark(_: SparkResource) -> None:
    raise TableBusy("Spark was asked for", fix="do not")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as found:
        yield found


def asked(instance: dg.DagsterInstance) -> dg.RunRequest | dg.SkipReason:
    schedule = build_definitions(load_settings()).get_repository_def().get_schedule_def(JOB)
    data = schedule.evaluate_tick(dg.build_schedule_context(instance=instance))
    return data.run_requests[0] if data.run_requests else dg.SkipReason(data.skip_message)


def run(instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    found = build_definitions(load_settings()).resolve_job_def(JOB)
    return found.execute_in_process(instance=instance, raise_on_error=False)


def test_it_is_asked_for_where_closed_days_have_several_small_files(domain, instance):
    assert asked(instance) == dg.SkipReason("no table has many small files")
    write_table(domain, "raw_events", [CLOSED])
    assert asked(instance) == dg.SkipReason("no table has many small files")
    write_table(domain, "raw_events", [CLOSED])
    request = asked(instance)
    assert isinstance(request, dg.RunRequest)
    assert request.tags["etl_assets/compact"] == "raw_events"
    create_run_for_test(instance, job_name=JOB, status=dg.DagsterRunStatus.STARTED)
    assert asked(instance) == dg.SkipReason("the run before is under way")


def test_today_and_tables_without_days_are_left_alone_until_they_are_crowded(domain, instance, monkeypatch):
    for module in (compaction, job):
        monkeypatch.setattr(module, "CROWDED_FILES", 4)
    today = {"partition_date": dt.datetime.now(dt.UTC).date()}
    for _ in range(3):
        write_table(domain, "raw_events", [today])
        write_table(domain, "customers", [{}])
    assert asked(instance) == dg.SkipReason("no table has many small files")
    write_table(domain, "raw_events", [today])
    write_table(domain, "customers", [{}])
    request = asked(instance)
    assert isinstance(request, dg.RunRequest)
    assert sorted(request.tags["etl_assets/compact"].split(",")) == ["customers", "raw_events"]


def test_with_nothing_to_do_a_run_starts_no_spark(domain, instance):
    write_table(domain, "raw_events", [CLOSED])
    result = run(instance)
    assert result.success
    assert figures(result) == {"files_before": 0, "files_after": 0, "bytes_before": 0, "bytes_after": 0}


def test_a_table_that_fails_does_not_keep_the_others_from_their_turn(domain, instance, monkeypatch):
    for table in ("raw_events", "customers", "warehouse_rows"):
        for _ in range(2):
            write_table(domain, table, [CLOSED if table != "customers" else {}])
    turns: list[str] = []
    due = Compact.run

    def counted(self: Compact) -> object:
        turns.append(self.table)
        return due(self)

    monkeypatch.setattr(Compact, "run", counted)
    (load_settings().home / "platform.yaml").write_text("runs: {max_retries: 0}\n", "utf-8")
    result = run(instance)
    assert not result.success
    told = "".join(str(event.event_specific_data) for event in result.all_events if event.is_step_failure)
    assert "warehouse_rows" in turns[turns.index("raw_events") :]
    assert "raw_events: TableBusy: Spark was asked for" in told
    assert "warehouse_rows: TableBusy: Spark was asked for" in told
    assert "customers" not in told, "two files of a table without days are not many"


def test_a_table_that_a_run_is_writing_is_left_for_the_next_hour(domain, instance, monkeypatch):
    """Its run has planned on the version that is there, and would lose its work."""
    turns: list[str] = []
    monkeypatch.setattr(Compact, "run", lambda self: turns.append(self.table) or (NOTHING, NOTHING))
    slots = instance.event_log_storage
    slots.set_concurrency_slots("raw_events", 1)
    writer = create_run_for_test(instance, job_name="ingest", status=dg.DagsterRunStatus.STARTED)
    slots.claim_concurrency_slot("raw_events", writer.run_id, "raw_events")
    assert run(instance).success
    assert set(turns) == set(CATALOG.names) - {"raw_events"}
    slots.free_concurrency_slot_for_step(writer.run_id, "raw_events")
    turns.clear()
    assert run(instance).success
    assert set(turns) == set(CATALOG.names)


def test_a_platform_that_nobody_has_used_is_not_touched(tmp_path, instance):
    assert asked(instance) == dg.SkipReason("no table has many small files")
    assert not Path(tmp_path / "home").exists()


@pytest.mark.spark
def test_what_was_done_is_shown_with_the_table_and_with_the_run(engine, instance):
    from etl_assets.resources.platform import PlatformResource

    settings = load_settings()
    domain = settings.placement().domains[0]
    for number in range(3):
        write_table(domain, "raw_events", [{**CLOSED, "offset": number}])
    table = Table(name="raw_events", domain=domain)
    before = extent(table)
    platform = PlatformResource(settings_json=settings.model_dump_json(), spark=engine)
    found = build_definitions(settings, {"platform": platform}).resolve_job_def(JOB)
    result = found.execute_in_process(instance=instance)
    after = extent(table)
    assert (before.files, after.files) == (3, 1)
    expected = {
        "files_before": 3,
        "files_after": 1,
        "bytes_before": before.bytes,
        "bytes_after": after.bytes,
    }
    (observed,) = result.asset_observations_for_node("compact")
    assert observed.asset_key == dg.AssetKey("raw_events")
    assert {name: each.value for name, each in observed.metadata.items()} == expected
    assert figures(result) == expected
    assert asked(instance) == dg.SkipReason("no table has many small files")


def figures(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    (output,) = (event for event in result.all_events if event.is_successful_output)
    metadata = output.step_output_data.metadata
    return {name: each.value for name, each in metadata.items() if name != "tables"}
