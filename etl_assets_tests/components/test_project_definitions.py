"""What Dagster loads of a project with components of type `etl_assets.Pipeline`."""

from __future__ import annotations

import dagster as dg
import pytest

from etl_assets.build import build_definitions
from etl_assets.components.pipeline import PipelineComponent
from etl_assets.components.project import VALIDATING
from etl_assets.errors import PipelinesBroken, SettingsError
from etl_assets.pipelines.component_files import read_components
from etl_assets.settings import load_settings
from etl_assets_tests.components.dagster_project import (
    BROKEN,
    FILMS,
    RATINGS,
    DagsterProject,
    assets,
    component,
    dagster_project,
)

ORDERS = {"raw_events", "customers", "normalized_orders", "warehouse_rows", "order_status_view", "audit_log"}
SHARED = {*ORDERS, "dead_letters"}
OF_DAGSTER = {"dagster/code_references", "dagster/component_origin"}


@pytest.fixture
def project(tmp_path, monkeypatch) -> DagsterProject:
    monkeypatch.delenv("ETL_ASSETS_HOME")
    return dagster_project(tmp_path / "shop")


def cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def refused(project: DagsterProject) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Dagster wraps what is raised, and `cause` unwraps it
        project.load()
    return cause(caught.value)


def shown(spec: dg.AssetSpec) -> dict[str, object]:
    """What a spec says, but for what Dagster adds to those of components."""
    return {
        "description": spec.description,
        "group": spec.group_name,
        "owners": spec.owners,
        "kinds": spec.kinds,
        "deps": {each.asset_key for each in spec.deps},
        "partitions": spec.partitions_def,
        "automation": spec.automation_condition,
        "metadata": {key: value for key, value in spec.metadata.items() if key not in OF_DAGSTER},
    }


def names(definitions: dg.Definitions) -> dict[str, list[str]]:
    return {
        "checks": sorted(
            f"{key.asset_key.to_user_string()}.{key.name}"
            for each in definitions.asset_checks or ()
            if isinstance(each, dg.AssetsDefinition)
            for key in each.check_keys
        ),
        "sensors": sorted(each.name for each in definitions.sensors or ()),
        "schedules": sorted(each.name for each in definitions.schedules or ()),
        "resources": sorted(definitions.resources or {}),
    }


def test_a_component_has_the_definitions_that_a_pipeline_file_has(project, monkeypatch):
    project.write("films", component(FILMS))
    project.write("raw/ratings", component(RATINGS))
    loaded = project.load()
    # The same declarations as files of the same installation.
    (project.root / "pyproject.toml").unlink()
    folder = project.home / "pipelines"
    folder.mkdir(parents=True)
    (folder / "films.yaml").write_text(FILMS)
    (folder / "film_ratings.yaml").write_text(RATINGS)
    monkeypatch.setenv("ETL_ASSETS_HOME", str(project.home))
    files = build_definitions(load_settings())
    assert names(loaded) == names(files)
    of_components, of_files = assets(loaded), assets(files)
    assert set(of_components) == {*SHARED, "films", "films_source", "film_ratings", "film_ratings_source"}
    assert {key: shown(each) for key, each in of_components.items()} == {
        key: shown(each) for key, each in of_files.items()
    }


def test_several_documents_of_a_file_are_several_pipelines(project):
    project.write("all", component(FILMS, RATINGS))
    assert {"films", "film_ratings"} <= assets(project.load()).keys()


def test_what_all_share_comes_with_the_platform_if_there_is_one(project):
    project.write("films", component(FILMS))
    project.write("platform", "type: etl_assets.Platform\n")
    loaded = project.load()
    assert assets(loaded).keys() == {*SHARED, "films", "films_source"}
    assert loaded.executor is dg.in_process_executor


def test_the_platform_alone_is_a_whole_platform(project):
    project.write("platform", "type: etl_assets.Platform\n")
    folder = project.home / "pipelines"
    folder.mkdir(parents=True)
    (folder / "films.yaml").write_text(FILMS)
    loaded = project.load()
    assert assets(loaded).keys() == {*SHARED, "films", "films_source"}
    assert loaded.resources is not None
    assert {"delta", "platform", "spark"} == loaded.resources.keys()


def test_a_project_may_have_an_executor_of_its_own(project):
    project.write("films", component(FILMS))
    project.write("platform", "type: etl_assets.Platform\nattributes: {executor: project}\n")
    own = "import dagster as dg\n\ndefs = dg.Definitions(executor=dg.multiprocess_executor)\n"
    project.write("own", own, name="executor.py")
    assert project.load().executor is dg.multiprocess_executor


def test_two_platforms_are_refused(project):
    project.write("one", "type: etl_assets.Platform\n")
    project.write("two", "type: etl_assets.Platform\n")
    error = refused(project)
    assert isinstance(error, SettingsError)
    assert "2 components of type etl_assets.Platform" in error.message


def test_assets_of_the_user_keep_their_own_automation(project):
    project.write("films", component(FILMS))
    own = (
        "import dagster as dg\n\n\n@dg.asset(automation_condition=dg.AutomationCondition.eager())\n"
        "def mine() -> None: ...\n"
    )
    project.write("own", own, name="mine.py")
    repository = project.load().get_repository_def()
    targets = {
        each.name: {key.to_user_string() for key in each.asset_selection.resolve(repository.asset_graph)}
        for each in repository.sensor_defs
        if isinstance(each, dg.AutomationConditionSensorDefinition)
    }
    assert "mine" not in targets.pop("downstream_automation")
    assert targets == {"default_automation_condition_sensor": {"mine"}}


def test_a_broken_component_is_an_asset_with_its_problems_and_keeps_the_others(project):
    project.write("cinemas", component(BROKEN))
    project.write("films", component(FILMS))
    loaded = assets(project.load())
    assert loaded.keys() == {*SHARED, "films", "films_source", "broken_pipelines/cinemas"}
    inert = [each for each in project.load().assets or () if isinstance(each, dg.AssetSpec)]
    assert [each.key.path[-1] for each in inert] == ["cinemas"]
    described = loaded["broken_pipelines/cinemas"].description or ""
    assert "Correct `cinemas/defs.yaml`" in described
    assert "cinemas/defs.yaml:7:columns.seats.at\\_leest" in described
    assert "did you mean `at_least`" in described


@pytest.mark.parametrize(
    "text",
    [
        "type: etl_assets.Pipeline\n",
        "type: etl_assets.Pipeline\nattributes: {}\n",
        "type: etl_assets.Pipeline\nattributes: {name: 5, source: [], columns: x, table: null, else: 1}\n",
        component(FILMS.replace("name: films", "name: dead_letters")),
        component(RATINGS),
        component(FILMS.replace("incoming/", "{{ env.DATA }}/")),
        component(FILMS.replace("incoming/", "${NO_SUCH_VARIABLE}/")),
        component(FILMS) + "template_vars_module: .x\n",
    ],
    ids=["nothing", "empty", "wrong", "taken", "lookup", "template", "variable", "template_vars"],
)
def test_no_declaration_keeps_the_project_from_being_loaded(project, text):
    project.write("bad", text)
    project.write("films_again", component(FILMS.replace("films", "shows")))
    if "template_vars_module" in text:
        project.write(
            "bad",
            "from dagster import template_var\n\n\n@template_var\ndef x() -> int:\n    return 1\n",
            "x.py",
        )
    loaded = assets(project.load())
    assert "shows" in loaded
    assert [key for key in loaded if key.startswith("broken_pipelines/")], loaded.keys()


def test_all_problems_are_raised_where_dagster_validates(project, monkeypatch):
    project.write("cinemas", component(BROKEN, BROKEN.replace("cinemas", "theatres")))
    project.write("films", component(FILMS))
    monkeypatch.setenv(VALIDATING, "1")
    error = refused(project)
    assert isinstance(error, PipelinesBroken)
    path = project.defs / "cinemas" / "defs.yaml"
    assert f"{path}:7:columns.seats.at_leest: " in error.message
    assert f"{path}:16:columns.seats.at_leest: " in error.message
    assert error.fields["pipelines"] == ("cinemas", "theatres")


def test_valid_pipelines_are_loaded_where_dagster_validates(project, monkeypatch):
    project.write("films", component(FILMS))
    monkeypatch.setenv(VALIDATING, "1")
    assert "films" in assets(project.load())


def test_an_installation_that_does_not_know_the_project_is_refused_with_the_line_to_add(
    project, tmp_path, monkeypatch
):
    project.write("films", component(FILMS))
    home = tmp_path / "elsewhere"
    monkeypatch.setenv("ETL_ASSETS_HOME", str(home))
    error = refused(project)
    assert isinstance(error, SettingsError)
    line = f"pipelines: {{defs_folders: [{project.defs.resolve()}]}}"
    assert line in error.fix
    home.mkdir()
    (home / "platform.yaml").write_text(line)
    assert "films" in assets(project.load())
    assert load_settings().catalog().table("films").name == "films"


def test_another_type_of_the_same_class_is_refused(project):
    project.write(
        "films",
        component(FILMS).replace("etl_assets.Pipeline", "etl_assets.components.pipeline.PipelineComponent"),
    )
    error = refused(project)
    assert isinstance(error, SettingsError)
    assert "`type: etl_assets.Pipeline`" in error.fix


def test_post_processing_of_a_component_holds(project):
    more = 'post_processing: {assets: [{target: "*", attributes: {tags: {tier: gold}}}]}\n'
    project.write("films", component(FILMS) + more)
    assert assets(project.load())["films_source"].tags["tier"] == "gold"


@pytest.mark.filterwarnings(
    "ignore:`parse_obj_as` is deprecated"
)  # Dagster's own, silent where it loads a project
def test_the_same_files_are_read_as_dagster_finds(project):
    folder = "type: dagster.DefsFolderComponent\n"
    project.write("films", component(FILMS))
    project.write("films/below", component(FILMS.replace("films", "below")))
    project.write("group", folder)
    project.write("group/shows", component(FILMS.replace("films", "shows")), name="defs.yml")
    project.write("group/a-b", component(FILMS.replace("films", "ab")), name="component.yaml")
    project.write("group/a", component(FILMS.replace("films", "a1"), FILMS.replace("films", "a2")))
    project.write(".hidden", component(FILMS.replace("films", "hidden")))
    project.write("__pycache__", component(FILMS.replace("films", "cached")))
    project.write("both", component(FILMS.replace("films", "first")))
    project.write("both", component(FILMS.replace("films", "second")), name="defs.yml")
    with project.importable():
        tree = dg.ComponentTree.for_project(project.root)
        found = [(each.folder, each.document) for each in tree.get_all_components(of_type=PipelineComponent)]
    read = read_components(project.defs)
    assert [(file.path.parent, file.document) for file in read] == found
    assert [file.name for file in read] == ["first", "films", "a1", "a2", "ab", "shows"]
