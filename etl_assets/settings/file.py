"""Where the platform file is, and reading it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from etl_assets import environment
from etl_assets.errors import SettingsError
from etl_assets.settings.platform import Settings
from etl_assets.settings.refusal import refusal


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
        return Settings.model_validate({**content, "home": home})
    except ValidationError as error:
        raise refusal(file, error) from error


def _read(file: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if must_exist:
            raise SettingsError(
                f"the platform file {file} does not exist",
                fix=f"create it, or unset {environment.PLATFORM_FILE.name}",
                field=environment.PLATFORM_FILE.name,
            ) from None
        return {}
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        # The error itself quotes the line, which may hold a secret.
        raise SettingsError(
            f"the platform file {file} cannot be read: it is no YAML{where}", fix="mend the file"
        ) from None
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
