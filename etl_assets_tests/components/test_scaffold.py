"""What `dg scaffold defs etl_assets.Pipeline` writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import dagster as dg
import pytest

from etl_assets.components.pipeline_scaffolder import PipelineScaffolder, PipelineScaffolderParams
from etl_assets.errors import InputError, SettingsError
from etl_assets.pipelines.component_files import read_component_file
from etl_assets.pipelines.files_spec import FilesSource
from etl_assets_tests.components.dagster_project import DagsterProject, assets, dagster_project


@pytest.fixture
def project(tmp_path, monkeypatch) -> DagsterProject:
    monkeypatch.delenv("ETL_ASSETS_HOME")
    return dagster_project(tmp_path / "shop")


def scaffold(
    project: DagsterProject,
    folder: str,
    *,
    sample: Path | None = None,
    form: Literal["yaml", "python"] = "yaml",
    append: bool = False,
) -> Path:
    """Scaffold as `dg` does, which makes the folder before."""
    target = project.defs / folder
    target.mkdir(parents=True, exist_ok=True)
    path = target / "defs.yaml"
    PipelineScaffolder().scaffold(
        dg.ScaffoldRequest(
            type_name="etl_assets.Pipeline",
            target_path=path if append else target,
            scaffold_format=form,
            project_root=project.root,
            params=PipelineScaffolderParams(sample=None if sample is None else str(sample)),
            append=append,
        )
    )
    return path


def test_a_new_component_is_valid_and_named_as_its_folder(project):
    path = scaffold(project, "raw/films")
    (file,) = read_component_file(path)
    assert (file.name, file.problems) == ("films", ())
    assert "etl-assets pipelines validate src/shop/defs/raw/films/defs.yaml" in path.read_text()
    assert not re.search(r"\$schema", path.read_text())
    assert {"films", "films_source"} <= assets(project.load()).keys()


def test_a_sample_suggests_columns_and_the_path(project, tmp_path):
    sample = tmp_path / "landing" / "films.csv"
    sample.parent.mkdir()
    sample.write_text("Film ID,title\n1,Solaris\n2,Stalker\n")
    (file,) = read_component_file(scaffold(project, "films", sample=sample))
    assert file.spec is not None
    assert isinstance(file.spec.source, FilesSource)
    assert file.spec.source.path == str(tmp_path / "landing" / "*.csv")
    assert file.spec.table.keys == ("film_id",)


def test_a_second_one_is_added_to_a_file(project):
    scaffold(project, "films")
    path = project.defs / "films" / "defs.yaml"
    path.write_text(path.read_text().replace("name: films", "name: movies"))
    scaffold(project, "films", append=True)
    assert [(each.name, each.problems) for each in read_component_file(path)] == [
        ("movies", ()),
        ("films", ()),
    ]


@pytest.mark.parametrize("name", ["dead_letters", "orders", "Films", "raw-films", "no"])
def test_a_name_that_no_pipeline_can_have_makes_no_file(project, name):
    if name == "no":
        assert scaffold(project, name).exists()  # a text here, though not in every YAML
        return
    with pytest.raises(SettingsError, match="no pipeline can be made"):
        scaffold(project, name)
    assert not (project.defs / name / "defs.yaml").exists()


def test_a_sample_of_no_known_format_makes_no_file(project, tmp_path):
    sample = tmp_path / "films.xlsx"
    sample.write_text("?")
    with pytest.raises(InputError):
        scaffold(project, "films", sample=sample)
    assert not (project.defs / "films" / "defs.yaml").exists()


def test_python_is_refused(project):
    with pytest.raises(SettingsError, match="declared in YAML"):
        scaffold(project, "films", form="python")
