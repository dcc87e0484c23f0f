"""The Dagster instance of an installation: its folder, its settings, and access to it from a command."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from etl_assets import environment
from etl_assets.delta.log.durability import write_durably
from etl_assets.deployment import INSTANCE

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from etl_assets.settings import Settings

_HEADING = "# Written by etl-assets from etl_assets/deployment/dagster.yaml: what is changed here is lost.\n"


def prepare_instance(settings: Settings, environ: Mapping[str, str] | None = None) -> Path:
    """Write the instance's `dagster.yaml` and return its folder.

    The storage is SQLite in that folder, or the database that `ETL_ASSETS_POSTGRES_URL` names. Dagster reads
    the address from the environment; the file does not contain it.
    """
    content = yaml.safe_load(INSTANCE.read_text("utf-8"))
    url = environment.POSTGRES_URL.read(environ)
    if url is not None:
        if environ is None:
            os.environ[environment.POSTGRES_URL.name] = with_driver(url)
        content["storage"] = {"postgres": {"postgres_url": {"env": environment.POSTGRES_URL.name}}}
    text = f"{_HEADING}{yaml.safe_dump(content)}"
    file = settings.dagster_home / "dagster.yaml"
    if not file.is_file() or file.read_text("utf-8") != text:
        write_durably(file, text.encode())
    return settings.dagster_home


def with_driver(url: str) -> str:
    """Return the address with the driver that dagster-postgres installs.

    SQLAlchemy 2.1 defaults to another.
    """
    scheme, separator, rest = url.partition("://")
    known = scheme in ("postgresql", "postgres")
    return f"postgresql+psycopg2{separator}{rest}" if known else url


def open_instance(settings: Settings) -> DagsterInstance:
    """Open the instance of this installation, and prepare it if it does not exist yet."""
    os.environ["DAGSTER_HOME"] = str(prepare_instance(settings))
    from dagster import DagsterInstance

    return DagsterInstance.get()
