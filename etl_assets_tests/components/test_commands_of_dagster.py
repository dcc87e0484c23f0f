"""`dg` in a project of a user's, as it is typed."""

from __future__ import annotations

import pytest
import yaml

from etl_assets_tests.components.dagster_project import BROKEN, component, dagster_project

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_dg_lists_the_types_scaffolds_a_pipeline_and_checks_it(tmp_path):
    project = dagster_project(tmp_path / "shop")
    sample = tmp_path / "films.csv"
    sample.write_text("Film ID,title\n1,Solaris\n2,Stalker\n")
    listed = project.shell("dg", "list", "components")
    assert "etl_assets.Pipeline " in listed
    assert "etl_assets.Platform " in listed
    # 1. A new component is valid.
    project.shell("dg", "scaffold", "defs", "etl_assets.Pipeline", "raw/films", "--sample", str(sample))
    written = yaml.safe_load((project.defs / "raw" / "films" / "defs.yaml").read_text())
    assert list(written["attributes"]["columns"]) == ["film_id", "title"]
    assert "All definitions loaded successfully" in project.shell("dg", "check", "defs")
    # 2. A broken one fails the check by its line and field. That it keeps no other from being loaded is in
    #    test_project_definitions.py.
    path = project.write("broken", component(BROKEN))
    checked = project.shell("dg", "check", "defs", exit_code=1)
    assert f"{path}:7:columns.seats.at_leest: there is no field `at_leest`" in checked
    assert "did you mean `at_least`?" in checked
