"""Set the first partition of a demo's installation in its platform file."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import click
import yaml

from etl_assets.delta.log.durability import write_durably

if TYPE_CHECKING:
    from etl_assets.settings import Settings


def start_partitions(home: Path, day: dt.date) -> None:
    """Make the partitions start no later than the first day of the events.

    In a new installation they start on the first day with any file, so that no day is empty. An installation
    in use keeps all its partitions.

    Raises:
        SettingsError: `start_date` is after that day, in a platform file that is not the installation's own.
    """
    from etl_assets import environment
    from etl_assets.errors import SettingsError
    from etl_assets.settings import load_settings

    settings = load_settings()
    elsewhere = environment.PLATFORM_FILE.read()
    if settings.start_date > day:
        if elsewhere is not None:
            raise SettingsError(
                f"start_date in {elsewhere} is after {day}, the first day of the events",
                fix=f"set start_date: {day} there",
                field="start_date",
            )
        _write(home / "platform.yaml", day)
    elif elsewhere is None and "start_date" not in settings.model_fields_set and _is_new(settings):
        _write(home / "platform.yaml", min([day, *_landed_days(settings)]))


def _is_new(settings: Settings) -> bool:
    """Return whether nothing has been materialized yet.

    A root that is unavailable at the moment proves nothing; Dagster's folder does.
    """
    tables = (domain.root / "tables" for domain in settings.placement().domains)
    return not settings.dagster_home.exists() and not any(folder.exists() for folder in tables)


def _landed_days(settings: Settings) -> list[dt.date]:
    from etl_assets.sources.landing import parse_day

    folder = settings.landing_path
    found = [parse_day(entry.name) for entry in folder.iterdir()] if folder.is_dir() else []
    return [day for day in found if day is not None]


def _write(file: Path, day: dt.date) -> None:
    text = file.read_text("utf-8") if file.is_file() else ""
    content = yaml.safe_load(text) or {}
    if content and "start_date" not in content and not text.lstrip().startswith("{"):
        text = f"{text.rstrip()}\nstart_date: {day}\n"  # comments stay
    else:
        text = yaml.safe_dump({**content, "start_date": day}, sort_keys=False)
    write_durably(file, text.encode())
    click.echo(f"==>     partitions start on {day} ({file})", err=True)
