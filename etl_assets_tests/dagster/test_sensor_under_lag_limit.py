"""The sensor of a source that waits for a sink: it asks for a delivery, and for files once that succeeded."""

from __future__ import annotations

import os
import time
from typing import Any

import dagster as dg
import pytest

from etl_assets.build import build_definitions
from etl_assets.delta.log.cursor import cursor_name
from etl_assets.sensors.source_pauses import pauses_file
from etl_assets.sensors.sources import source_sensors
from etl_assets.settings import load_settings
from etl_assets_tests.reference.written_tables import write_table

FILMS = """\
name: films
source: {type: files, path: "in/*.jsonl", id: [id]}
columns: {id: bigint}
table: {keys: [id]}
sinks: [{type: duckdb, connection: marts, table: films, max_lag: {rows: 4}}]
"""
SINK = "films_to_duckdb"


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    (tmp_path / "platform.yaml").write_text(
        "connections: {marts: {type: duckdb, path: m.db, write: ['*']}}\npipelines: {built_in: []}\n"
    )
    for folder in ("pipelines", "in"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pipelines" / "films.yaml").write_text(FILMS)
    (tmp_path / "in" / "a.jsonl").write_text('{"id": 1}\n')
    an_hour_ago = time.time() - 3_600
    os.utime(tmp_path / "in" / "a.jsonl", (an_hour_ago, an_hour_ago))
    return load_settings()


def test_while_a_sink_is_over_its_limit_it_is_delivered_to_and_no_file_is_read(settings):
    (domain,) = settings.placement().domains
    rows: list[dict[str, Any]] = [{"id": each, "_batch_id": 0} for each in range(5)]
    write_table(domain, "films", rows)
    (sensor,) = source_sensors(settings, settings.catalog().pipelines)
    with dg.DagsterInstance.ephemeral() as instance:

        def tick() -> dg.SensorResult:
            context = dg.build_sensor_context(instance=instance, definitions=dg.Definitions(sensors=[sensor]))
            result = sensor(context)
            assert isinstance(result, dg.SensorResult)
            return result

        def requests() -> list[dg.RunRequest]:
            return list(tick().run_requests or ())

        (request,) = requests()
        assert (request.run_key, request.asset_selection) == (f"{SINK}:0#0", [dg.AssetKey(SINK)])
        assert request.partition_key is None
        job = build_definitions(settings).resolve_implicit_global_asset_job_def()
        chosen = job.get_subset(asset_selection={dg.AssetKey(SINK)})
        run = instance.create_run_for_job(chosen, tags=request.tags, status=dg.DagsterRunStatus.STARTED)
        waiting = tick()
        assert not waiting.run_requests
        assert f"{SINK} is 1 commits and 5 rows behind films" in str(waiting.skip_reason)
        assert "over its limit of 4 rows" in str(waiting.skip_reason)
        assert "a run for it is under way" in str(waiting.skip_reason)
        instance.report_run_failed(run)
        assert "failed lately" in str(tick().skip_reason)

        row = {"to_version": 0, "_batch_id": 0, "seconds": 1.0}
        write_table(domain, SINK, [row], {cursor_name("films", None): 0})
        (request,) = requests()
        assert str(request.run_key).startswith("films_source:")
        assert pauses_file(settings.home).read_text() == "{}"
