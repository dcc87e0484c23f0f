"""`etl-assets engine`: keeps Spark and the definitions warm for runs that Dagster launches on this machine."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import click


@click.command(
    epilog="\b\nExamples:\n  etl-assets engine            # in the foreground, until Ctrl-C\n  etl-assets engine --status"
)
@click.option("--status", "only_status", is_flag=True, help="Say whether one is there, and stop.")
def engine(only_status: bool) -> None:
    """Serve runs of this installation from a warm Spark, in the foreground, until interrupted.

    `etl-assets dev` starts one by itself. Runs that it does not take are launched without it.
    """
    from etl_assets.engine import handing
    from etl_assets.settings import home_folder, load_settings

    if only_status:
        found = handing.status(home_folder())
        if found is None:
            click.echo("no engine: runs start Spark by themselves")
            sys.exit(1)
        state = "ready" if found["ready"] else "starting"
        click.echo(f"{state}, process {found['pid']}, {found['runs']} runs under way")
        return
    if sys.platform != "linux":
        raise click.UsageError("the engine needs Linux; runs work without it")
    os.environ["ETL_ASSETS_HOME"] = str(home_folder())
    # A thread of a library's own could hold a lock at the moment a child is made.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    settings = load_settings()
    settings.home.mkdir(parents=True, exist_ok=True)
    from etl_assets.engine.engine import Engine

    try:
        again = Engine(settings, _say).serve()
    except FileExistsError:
        _say("another engine serves this installation already")
        return
    if again:
        os.execv(sys.executable, [sys.executable, "-m", "etl_assets.cli.main", "engine"])


def _say(line: str) -> None:
    with suppress(OSError):  # a log that is full or gone ends no run
        click.echo(f"engine: {line}", err=True)
