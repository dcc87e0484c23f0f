"""`dg` in a project of a user's, as it is typed."""

from __future__ import annotations

import pytest
import yaml

from etl_assets_tests.components.dagster_project import BROKEN, component, dagster_project

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_dg_lists_the_types_scaffolds_a_pipeline_and_checks_it(tmp_path):
    project = dagster_project(tmp_path / "shop")
    sample = tmp_path / "cinemas.csv"
    sample.write_text("Cinema ID,seats\n1,200\n2,80\n")
    listed = project.shell("dg", "list", "components")
    assert "etl_assets.Pipeline " in listed
    assert "etl_assets.Platform " in listed
    # 1. A new component is valid, with and without a sample.
    project.shell("dg", "scaffold", "defs", "etl_assets.Pipeline", "films")
    project.shell("dg", "scaffold", "defs", "etl_assets.Pipeline", "raw/cinemas", "--sample", str(sample))
    written = yaml.safe_load((project.defs / "raw" / "cinemas" / "defs.yaml").read_text())
    assert written["type"] == "etl_assets.Pipeline"
    assert written["attributes"]["name"] == "cinemas"
    assert list(written["attributes"]["columns"]) == ["cinema_id", "seats"]
    assert "All definitions loaded successfully" in project.shell("dg", "check", "defs")
    # 2. A name that is taken makes nothing.
    refused = project.shell("dg", "scaffold", "defs", "etl_assets.Pipeline", "dead_letters", exit_code=1)
    assert "the name `dead_letters` is taken" in refused
    # 3. A broken one fails the check by its line and field, while the others are loaded.
    path = project.write("broken", component(BROKEN))
    checked = project.shell("dg", "check", "defs", exit_code=1)
    assert f"{path}:7:columns.seats.at_leest: there is no field `at_leest`" in checked
    assert "did you mean `at_least`?" in checked
    loaded = project.shell("dg", "list", "defs", "--json")
    assert "broken_pipelines/cinemas" in loaded
    assert "films_source" in loaded
