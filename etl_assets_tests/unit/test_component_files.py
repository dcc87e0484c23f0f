"""Pipelines in the `defs.yaml` files of a Dagster project."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from etl_assets.cli.pipelines import pipelines
from etl_assets.installed import installed
from etl_assets.pipelines.component_files import read_component_file, read_components
from etl_assets.pipelines.dagster_project import defs_folder
from etl_assets.pipelines.files_spec import FilesSource
from etl_assets.settings import load_installation, load_settings
from etl_assets_tests.components.dagster_project import (
    BROKEN,
    FILMS,
    RATINGS,
    DagsterProject,
    component,
    dagster_project,
)


@pytest.fixture
def project(tmp_path, monkeypatch) -> DagsterProject:
    made = dagster_project(tmp_path / "shop")
    monkeypatch.setenv("ETL_ASSETS_HOME", str(made.home))
    return made


def problems(path: Path) -> list[tuple[int | None, str]]:
    return [(each.line, each.field) for file in read_component_file(path) for each in file.problems]


def run(*arguments: object, exit_code: int = 0):
    result = CliRunner().invoke(pipelines, [str(each) for each in arguments])
    assert result.exit_code == exit_code, (result.output, result.exception)
    return json.loads(result.stdout) if "--json" in arguments else result.output


def test_a_problem_has_the_line_of_the_file_and_the_field_of_the_declaration(project):
    path = project.write("x", component(FILMS, BROKEN))
    assert problems(path) == [(16, "columns.seats.at_leest")]


def test_what_stands_beside_the_attributes_is_checked(project):
    path = project.write("x", component(FILMS) + "atributes: {}\ntemplate_vars_module: .x\n")
    assert problems(path) == [(9, "atributes"), (10, "template_vars_module")]


def test_a_name_that_stands_twice_is_reported_once_with_its_field(project):
    path = project.write("x", component(FILMS.replace("  title: string", "  title: string\n  title: date")))
    assert problems(path) == [(8, "columns.title")]


def test_templates_of_dagster_are_refused_with_what_to_write(project):
    path = project.write("x", component(FILMS.replace("incoming/", "{{ env.DATA }}/")))
    found = [each for file in read_component_file(path) for each in file.problems]
    assert (4, "source.path") in {(each.line, each.field) for each in found}
    assert any("`${NAME}` in the source" in each.fix for each in found)


def test_variables_of_the_environment_are_replaced(project):
    path = project.write("x", component(FILMS.replace("incoming/", "${DATA}/")))
    (file,) = read_component_file(path, {"DATA": "/data"})
    assert file.spec is not None
    assert isinstance(file.spec.source, FilesSource)
    assert file.spec.source.path == "/data/films/*.csv"


def test_text_that_is_no_yaml_breaks_the_documents_from_there_on(project):
    path = project.write("x", component(FILMS) + "---\ntype: etl_assets.Pipeline\nattributes: {name: [}\n")
    good, bad = read_component_file(path)
    assert good.spec is not None
    assert (bad.spec, bad.name) == (None, "x")
    assert bad.problems[0].line == 11


def test_files_of_other_components_are_left_alone(project):
    project.write("sql", "type: dagster.TemplatedSqlComponent\nattributes: {sql: !!python/object x}\n")
    project.write("other", "type: etl_assets_of_mine.Pipeline\nattributes: {}\n")
    project.write("no_yaml", "type: [")
    assert read_components(project.defs) == ()


def test_a_file_without_pipelines_says_which_types_it_has(project):
    path = project.write("x", "type: etl_assets.Pipelin\nattributes: {}\n")
    (file,) = read_component_file(path)
    assert "no component of type etl_assets.Pipeline: etl_assets.Pipelin" in file.problems[0].message


def test_links_out_of_the_folder_are_not_followed(project, tmp_path):
    outside = tmp_path / "outside.yaml"
    outside.write_text(component(FILMS))
    (project.defs / "x").mkdir()
    (project.defs / "x" / "defs.yaml").symlink_to(outside)
    (project.defs / "loop").symlink_to(project.defs)
    (file,) = read_components(project.defs)
    assert "link that leads out" in file.problems[0].message


def test_files_are_read_again_when_they_change(project):
    path = project.write("films", component(FILMS))
    folders = load_settings().defs_folders
    assert [each.name for each in installed(project.home, defs_folders=folders).catalog.pipelines][1:-1] == [
        "films"
    ]
    path.write_text(component(FILMS.replace("films", "shows")))
    os.utime(path, ns=(1, 1))
    assert [each.name for each in installed(project.home, defs_folders=folders).catalog.pipelines][1:-1] == [
        "shows"
    ]


def test_a_file_of_the_home_folder_keeps_its_name_from_a_component(project):
    (project.home / "pipelines").mkdir(parents=True)
    (project.home / "pipelines" / "films.yaml").write_text(FILMS)
    project.write("films", component(FILMS))
    file, of_project = load_settings().installed().files
    assert file.spec is not None
    assert "taken by films.yaml" in of_project.problems[0].message


def test_a_folder_that_cannot_be_listed_keeps_only_its_own_pipelines(project):
    project.home.mkdir()
    (project.home / "platform.yaml").write_text(f"pipelines: {{defs_folders: [missing, {project.defs}]}}\n")
    project.write("films", component(FILMS))
    found = load_settings().installed()
    assert [file.name for file in found.files] == ["films"]
    assert found.unlisted == f"{project.home}/missing cannot be listed: No such file or directory"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[tool.dg.project]\nroot_module = "shop"\n'),
        ("pyproject.toml", '[tool.dg.project]\nroot_module = "shop"\ndefs_module = "shop.defs"\n'),
        ("dg.toml", 'directory_type = "project"\n[project]\nroot_module = "shop"\n'),
    ],
)
def test_the_defs_folder_of_a_project_is_found_as_dagster_finds_it(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    (tmp_path / "shop" / "defs").mkdir(parents=True)
    assert defs_folder(tmp_path) == tmp_path / "shop" / "defs"
    (tmp_path / "src" / "shop" / "defs").mkdir(parents=True)
    assert defs_folder(tmp_path) == tmp_path / "src" / "shop" / "defs"


@pytest.mark.parametrize(
    "text", ["", "[tool", "[tool.dg]\n", "[tool]\ndg = 1\n", '[tool.dg.project]\nroot_module = "x"\n']
)
def test_a_folder_without_a_project_has_no_defs_folder(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    assert defs_folder(tmp_path) is None


def test_commands_know_the_pipelines_of_a_project_before_anything_has_run(project):
    project.write("films", component(FILMS))
    assert load_installation().catalog().table("films").merge_key == ("film",)


def test_the_commands_list_show_and_validate_components(project):
    films = project.write("films", component(FILMS))
    both = project.write("more/both", component(RATINGS, BROKEN))
    listed = run("list", "--json")
    assert [(each["name"], each["state"], each["file"]) for each in listed] == [
        ("films", "ok", str(films)),
        ("film_ratings", "ok", str(both)),
        ("cinemas", "broken", str(both)),
    ]
    assert run("validate", "--no-spark", films) == f"{films}: ok\n"
    output = run("validate", "--no-spark", both, exit_code=1)
    assert f"{both}: ok" in output
    assert f"{both}:21:columns.seats.at_leest: " in output
    assert run("show", "film_ratings", "--json")["declaration"]["name"] == "film_ratings"


def test_a_component_file_from_elsewhere_stands_for_the_one_of_its_folder(project, tmp_path):
    project.write("films", component(FILMS))
    copy = tmp_path / "films" / "defs.yaml"
    copy.parent.mkdir()
    copy.write_text(component(FILMS))
    assert run("validate", "--no-spark", copy) == f"{copy}: ok\n"
    copy.write_text(component(FILMS.replace("title: string", "title: strin")))
    output = run("validate", "--no-spark", copy, exit_code=1)
    assert f"{copy}:7:columns.title" in output


def test_files_of_one_name_in_different_folders_are_different_files(project):
    for name in ("a", "b", "c"):
        project.write(f"{name}/films", component(FILMS.replace("films", name)))
    assert [each["name"] for each in run("validate", "--no-spark", "--json")] == ["a", "b", "c"]
