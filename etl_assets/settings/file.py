"""Where the platform file is, and reading it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from etl_assets import environment
from etl_assets.errors import SettingsError
from etl_assets.settings.platform import Settings
from etl_assets.settings.refusal import refusal
from etl_assets.settings.yaml_content import read_yaml


def home_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The absolute home folder of this installation."""
    return Path(environment.HOME.read(environ) or ".etl-assets").expanduser().absolute()


def platform_file(environ: Mapping[str, str] | None = None) -> Path:
    """Where the platform file is, or would be."""
    named = environment.PLATFORM_FILE.read(environ)
    return Path(named).expanduser().absolute() if named else home_folder(environ) / "platform.yaml"


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read and validate the platform file; an absent default file means defaults.

    Raises:
        SettingsError: the file is missing although named, is not YAML, or a field is wrong; the message names the
            field, the value and what is allowed.
    """
    home = home_folder(environ)
    file = platform_file(environ)
    content = _read(file, must_exist=environment.PLATFORM_FILE.read(environ) is not None)
    if "home" in content:
        raise SettingsError(
            f"{file}: `home` is not a field of the platform file",
            fix=f"remove it and set {environment.HOME.name} instead",
            field="home",
        )
    master = environment.SPARK_MASTER.read(environ)
    if master is not None:
        spark = content.get("spark", {})
        # A section that is no mapping is left for the validation to name.
        content = {**content, "spark": {**spark, "master": master} if isinstance(spark, dict) else spark}
    try:
        settings = Settings.model_validate({**content, "home": home})
    except ValidationError as error:
        raise refusal(file, error) from error
    _check_first_day(file, settings.start_date, dt.datetime.now(dt.UTC).date())
    return settings


def _check_first_day(file: Path, first_day: dt.date, today: dt.date) -> None:
    # Somewhere it may be tomorrow already.
    if first_day > today + dt.timedelta(days=1):
        raise SettingsError(
            f"{file}: start_date = {first_day} is wrong: it is in the future (today is {today}), so there would be no partition",
            fix="allowed: today or earlier, such as `2026-01-01`",
            field="start_date",
            value=str(first_day),
            allowed="today or earlier",
        )


def _read(file: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        content = read_yaml(file.read_text(encoding="utf-8"), file)
    except FileNotFoundError:
        if must_exist:
            raise SettingsError(
                f"the platform file {file} does not exist",
                fix=f"create it, or unset {environment.PLATFORM_FILE.name}",
                field=environment.PLATFORM_FILE.name,
            ) from None
        return {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SettingsError(
            f"the platform file {file} cannot be read: {error}", fix="mend the file"
        ) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(
            f"{file} holds no mapping of fields", fix="write `field: value` lines, see docs/settings.md"
        )
    return content
