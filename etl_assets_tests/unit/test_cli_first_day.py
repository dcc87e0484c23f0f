"""The first partition after a demo: the first day with data of a new installation, never later than what
an older one has.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from etl_assets import environment
from etl_assets.errors import SettingsError
from etl_assets.orders.cli.first_day import start_partitions
from etl_assets.settings import load_settings

DAY = dt.date(2026, 11, 17)
EARLIER = dt.date(2026, 11, 3)
DEFAULT = dt.date(2026, 1, 1)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv(environment.HOME.name, str(home))
    monkeypatch.delenv(environment.PLATFORM_FILE.name, raising=False)
    return home


def first_partition(home: Path, day: dt.date = DAY) -> dt.date:
    start_partitions(home, day)
    return load_settings().start_date


def test_a_new_installation_starts_on_the_first_day_with_events_and_stays_there(home):
    assert first_partition(home) == DAY
    assert first_partition(home, DAY + dt.timedelta(days=3)) == DAY


def test_days_that_lie_in_the_landing_folder_already_keep_their_partition(home):
    (home / "landing" / EARLIER.isoformat()).mkdir(parents=True)
    assert first_partition(home) == EARLIER


def test_earlier_events_move_the_start_back(home):
    assert first_partition(home) == DAY
    assert first_partition(home, EARLIER) == EARLIER


@pytest.mark.parametrize("left", ["data/tables/raw_events", "dagster"])
def test_an_installation_that_is_in_use_keeps_every_partition_it_has(home, left):
    (home / left).mkdir(parents=True)
    assert first_partition(home) == DEFAULT
    assert not (home / "platform.yaml").exists()


def test_a_start_that_a_user_chose_is_kept(home):
    (home / "platform.yaml").write_text(f"start_date: {EARLIER}\n")
    assert first_partition(home) == EARLIER


def test_what_else_the_platform_file_says_stays_as_it_was_written(home):
    text = "# mine\nowners: [team:orders]"
    (home / "platform.yaml").write_text(text)
    assert first_partition(home) == DAY
    assert (home / "platform.yaml").read_text() == f"{text}\nstart_date: {DAY}\n"


def test_a_platform_file_elsewhere_is_not_written_to(home, tmp_path, monkeypatch):
    file = tmp_path / "shared.yaml"
    file.write_text("owners: [team:orders]\n")
    monkeypatch.setenv(environment.PLATFORM_FILE.name, str(file))
    assert first_partition(home) == DEFAULT
    with pytest.raises(SettingsError, match="is after 2025-12-31"):
        start_partitions(home, DEFAULT - dt.timedelta(days=1))
    assert file.read_text() == "owners: [team:orders]\n"
