"""Where tables of users' own assets are written in an installation, and the names that are taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from etl_assets.errors import ContractError, DomainUnavailable
from etl_assets.io_managers.placed import expect_own_name, own_context, settings_of
from etl_assets.settings import Settings, load_settings
from etl_assets.steps.placing import leader
from etl_assets_tests.reference.own_tables import NAME, append, own_table


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Three domains that nothing has used."""
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    platform = {"domains": [{"name": name, "root": name} for name in "abc"]}
    (tmp_path / "platform.yaml").write_text(yaml.safe_dump(platform), "utf-8")
    return load_settings()


def no_session():
    raise AssertionError


def placed(settings: Settings) -> str:
    return own_context(settings, own_table(settings.placement().domains[0]), no_session).domain.name


def test_the_first_write_of_an_installation_takes_the_roots_into_use(settings):
    context = own_context(settings, own_table(settings.placement().domains[0]), no_session)
    assert append(own_table(context.domain), [{"n": 1}]) == 0
    assert leader(settings.placement(), NAME) == "a"


def test_the_write_goes_on_in_another_domain_when_the_first_is_away_and_stays_there(settings, tmp_path):
    append(
        own_table(own_context(settings, own_table(settings.placement().domains[0]), no_session).domain),
        [{"n": 1}],
    )
    (tmp_path / "a").rename(tmp_path / "away")
    assert placed(settings) == "b"
    domain = settings.placement().named("b")
    assert domain is not None
    assert append(own_table(domain), [{"n": 2}]) == 1
    (tmp_path / "away").rename(tmp_path / "a")
    settings.placement().watch.probe_all(settings.placement().sites)
    assert placed(settings) == "b"


def test_without_a_domain_that_answers_nothing_is_written(settings, tmp_path):
    placed(settings)
    for name in "abc":
        (tmp_path / name).rename(tmp_path / f"{name} is away")
    with pytest.raises(DomainUnavailable, match=f"no failure domain can run stage transform of {NAME}"):
        placed(settings)


@pytest.mark.parametrize("name", ["raw_events", "customers", "effects"])
def test_an_own_asset_cannot_take_the_name_of_a_table_of_the_platform(settings, name):
    table = own_table(settings.placement().domains[0], name)
    with pytest.raises(ContractError, match=f"cannot write the table {name}: it is that of the"):
        expect_own_name(settings, table, name)


def test_nor_that_of_a_declared_pipeline(settings, tmp_path):
    pipeline = {
        "name": "visits",
        "source": {"type": "files", "path": "in/*.csv"},
        "columns": {"n": "bigint"},
        "table": {"keys": ["n"]},
    }
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "visits.yaml").write_text(yaml.safe_dump(pipeline), "utf-8")
    with pytest.raises(ContractError, match="it is that of the pipeline visits"):
        expect_own_name(settings, own_table(settings.placement().domains[0], "visits"), "visits")
    expect_own_name(settings, own_table(settings.placement().domains[0], "lab.visits"), "lab/visits")


def test_an_io_manager_with_a_folder_of_its_own_stands_alone(settings, tmp_path):
    first = settings.placement().domains[0]
    found = settings_of(str(settings.home), first)
    assert found is not None
    assert found.home == settings.home
    assert settings_of("", first) is None
    assert settings_of(str(settings.home), replace(first, root=tmp_path / "own")) is None
    assert settings_of(str(settings.home), replace(first, sites=())) is None
