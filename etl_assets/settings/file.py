"""Location of the platform file, and loading it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from etl_assets import environment
from etl_assets.errors import NoInstallation, SettingsError
from etl_assets.settings.platform import Settings
from etl_assets.settings.refusal import refusal
from etl_assets.yaml_content import read_yaml


def home_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the absolute home folder of this installation."""
    return Path(environment.HOME.read(environ) or ".etl-assets").expanduser().absolute()


def platform_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the platform file, which may not exist."""
    named = environment.PLATFORM_FILE.read(environ)
    return Path(named).expanduser().absolute() if named else home_folder(environ) / "platform.yaml"


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read and validate the platform file. If the default file is absent, the defaults apply.

    Raises:
        SettingsError: a file that the environment names is missing, the file is not YAML, or a field is
            wrong; the message has the field, the value and what is allowed.
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
        # Leave a section that is not a mapping to the validation, which names it.
        content = {**content, "spark": {**spark, "master": master} if isinstance(spark, dict) else spark}
    try:
        settings = Settings.model_validate({**content, "home": home})
    except ValidationError as error:
        raise refusal(file, error) from error
    _check_first_day(file, settings.start_date, dt.datetime.now(dt.UTC).date())
    return settings


def load_installation(environ: Mapping[str, str] | None = None) -> Settings:
    """Load the platform file of an existing installation: for commands that must not create one.

    Raises:
        NoInstallation: the home folder holds neither a platform file nor a landing folder, pipelines or
            tables.
        SettingsError: as `load_settings`.
    """
    settings = load_settings(environ)
    marks = (
        platform_file(environ),
        settings.landing_path,
        settings.dagster_home / "dagster.yaml",
        settings.home / "pipelines",
        *(settings.home / each.root / "tables" for each in settings.domains),
    )
    if not any(mark.exists() for mark in marks) and not settings.installed().files:
        raise _no_installation(settings.home, environ)
    return settings


def _no_installation(home: Path, environ: Mapping[str, str] | None) -> NoInstallation:
    variable = environment.HOME.name
    named = environment.HOME.read(environ) is not None
    meant = [name for name, near in environment.unknown(environ).items() if near == variable]
    hint = f"{meant[0]} is set: did you mean {variable}? " if meant else ""
    return NoInstallation(
        f"there is no installation in {home}: neither a platform file nor a landing folder, pipelines or"
        " tables",
        fix=f"{hint}set {variable} to the folder of the installation"
        + ("" if named else " (without it, it is `.etl-assets` in the current folder)")
        + ", or make one with `etl-assets demo` or `etl-assets dev`",
        home=home,
    )


def expect_landing_folder(settings: Settings) -> None:
    """Reject a landing path that is not a folder; it may be absent.

    Raises:
        SettingsError: the path is a file.
    """
    if settings.landing_path.exists() and not settings.landing_path.is_dir():
        raise SettingsError(
            f"landing.path = {settings.landing_path} is a file, and has to be a folder of days",
            fix="name a folder, such as `landing`; it is made if it is not there",
            field="landing.path",
            value=str(settings.landing_path),
        )


def _check_first_day(file: Path, first_day: dt.date, today: dt.date) -> None:
    # In some time zones it is already tomorrow.
    if first_day > today + dt.timedelta(days=1):
        raise SettingsError(
            f"{file}: start_date = {first_day} is wrong: it is in the future (today is {today}), so there"
            " would be no partition",
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
            f"the platform file {file} cannot be read: {error}", fix="correct the file"
        ) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(
            f"{file} holds no mapping of fields", fix="write `field: value` lines, see docs/settings.md"
        )
    return content
