"""docs/dagster-projects.md says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from etl_assets.settings import PipelineSettings
from etl_assets_tests.components.dagster_project import ROOT, assets, dagster_project

PAGE = (ROOT / "docs" / "dagster-projects.md").read_text("utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_components_of_the_page_are_loaded(tmp_path: Path, monkeypatch):
    monkeypatch.delenv("ETL_ASSETS_HOME")
    pipeline, platform, setting = BLOCKS
    project = dagster_project(tmp_path / "shop")
    project.write("film_ratings", pipeline)
    loaded = assets(project.load())
    assert {"film_ratings", "film_ratings_source", "dead_letters"} <= loaded.keys()
    assert not [key for key in loaded if key.startswith("broken_pipelines")]
    project.write("platform", platform)
    assert assets(project.load()).keys() == loaded.keys()
    read = PipelineSettings.model_validate(yaml.safe_load(setting)["pipelines"])
    assert read.defs_folders == (Path("/app/src/shop/defs"),)
