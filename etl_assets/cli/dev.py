"""`etl-assets dev`: the Dagster UI and daemons on this installation's instance."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=3000, show_default=True, type=click.IntRange(0, 65_535), help="Port to listen on."
)
def dev(host: str, port: int) -> None:
    """Open the Dagster UI with all daemons: sensors, backfills, run queue and monitoring."""
    from etl_assets.instance import WORKSPACE, prepare_instance
    from etl_assets.settings import load_settings

    settings = load_settings()
    settings.landing_path.mkdir(parents=True, exist_ok=True)
    home = prepare_instance(settings)
    os.environ["DAGSTER_HOME"] = str(home)
    os.environ["ETL_ASSETS_HOME"] = str(settings.home)
    command = Path(sys.executable).with_name("dagster")
    click.echo(f"Dagster UI on http://{host}:{port}   landing folder: {settings.landing_path}", err=True)
    arguments = [str(command), "dev", "-w", str(WORKSPACE), "-h", host, "-p", str(port)]
    os.execv(command, arguments)
