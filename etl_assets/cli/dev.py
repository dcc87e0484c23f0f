"""`etl-assets dev`: the Dagster UI and daemons on this installation's instance."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from etl_assets import environment

if TYPE_CHECKING:
    from etl_assets.settings.serve import ServeSettings

_KNOWN_WARNING = "ignore:Function `dev_command` is superseded"
"""Dagster's version is pinned, and its `dev` works; a user cannot act on this warning."""
_WEBSERVER_PREFIX = "DAGSTER_WEBSERVER_PATH_PREFIX"
"""`dagster dev` has no option for it: its webserver reads the prefix from here."""
_NO_LOGIN = (
    "warning: everybody who reaches this address can run and stop everything. With `serve.ui` in the platform"
    " file the UI is behind the login of `etl-assets serve`"
)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=3000, show_default=True, type=click.IntRange(0, 65_535), help="Port to listen on."
)
@click.option(
    "--engine/--no-engine", default=True, show_default=True, help="Keep Spark warm for runs (see `engine`)."
)
@click.option(
    "--log-level",
    default="warning",
    show_default=True,
    type=click.Choice(["error", "warning", "info", "debug"]),
    help="What Dagster says in this terminal; with info, every look of a sensor.",
)
@click.option(
    "--stack",
    type=click.Choice(["full", "cdc"]),
    help="Run that demo over real servers first, and open the UI on it; they end with it (docs/stack.md).",
)
def dev(host: str, port: int, engine: bool, log_level: str, stack: str | None) -> None:
    """Open the Dagster UI with all daemons: sensors, backfills, run queue, monitoring.

    One on a home folder.
    """
    from etl_assets.cli.only_one import expect_free, hold_home

    if stack is not None:
        from etl_assets.built_in import demo_over_servers

        expect_free(host, port)
        options = ["--host", host, "--port", str(port), "--log-level", log_level]
        options.append("--engine" if engine else "--no-engine")
        sys.exit(demo_over_servers(stack, options))
    from etl_assets.deployment import WORKSPACE
    from etl_assets.instance import prepare_instance
    from etl_assets.settings import expect_landing_folder, load_settings

    settings = load_settings()
    prefix = _prefix(settings.serve, host)
    reads_landing = settings.catalog().reads_landing
    if reads_landing:
        expect_landing_folder(settings)
    hold_home(settings.home)
    expect_free(host, port)
    if reads_landing:
        settings.landing_path.mkdir(parents=True, exist_ok=True)
    home = prepare_instance(settings)
    os.environ["DAGSTER_HOME"] = str(home)
    os.environ["ETL_ASSETS_HOME"] = str(settings.home)
    if port:
        os.environ.setdefault(environment.DAGSTER_URL.name, _address(host, port) + prefix)
    os.environ[_WEBSERVER_PREFIX] = prefix
    if engine and sys.platform == "linux":
        _start_engine()
    read = (
        f"landing folder: {settings.landing_path}"
        if reads_landing
        else f"pipelines: {settings.home / 'pipelines'}"
    )
    click.echo(f"Dagster UI on http://{host}:{port}{prefix}   {read}", err=True)
    arguments = ["dev", "-w", str(WORKSPACE), "-h", host, "-p", str(port), "--log-level", log_level]
    os.execv(sys.executable, [sys.executable, "-W", _KNOWN_WARNING, "-m", "dagster", *arguments])


def _prefix(serve: ServeSettings, host: str) -> str:
    """Return the path under which the UI runs: that of `etl-assets serve` if it is behind its login.

    Raises:
        SettingsError: others could reach the UI past the login.
    """
    from etl_assets.errors import SettingsError
    from etl_assets.settings.loopback import is_loopback
    from etl_assets.settings.ui import PATH_PREFIX

    if serve.ui is not None and not is_loopback(host):
        raise SettingsError(
            f"others would reach the Dagster UI on {host} without the login that `serve.ui` asks for",
            fix="leave out --host, or remove `serve.ui` from the platform file",
            field="serve.ui",
        )
    if not is_loopback(host):
        click.echo(_NO_LOGIN, err=True)
    return "" if serve.ui is None else PATH_PREFIX


def _address(host: str, port: int) -> str:
    """Return the address by which this machine reaches a server that listens on a host."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"


def _start_engine() -> None:
    """Start an engine that ends with the UI.

    If another engine serves this installation, the new one exits.
    """
    import subprocess
    from functools import partial

    from etl_assets.engine.parent import die_with

    command = [sys.executable, "-m", "etl_assets.cli.main", "engine"]
    # This process becomes Dagster's by `exec`, and the engine ends with it.
    subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=partial(die_with, os.getpid())
    )
