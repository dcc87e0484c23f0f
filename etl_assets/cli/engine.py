"""`etl-assets engine`: keep Spark and the definitions warm for runs that Dagster launches on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress

import click

_LOAD = """
import sys
try:
    from etl_assets.cli import engine, main
    from etl_assets.settings import load_settings
    load_settings()
    import etl_assets.engine.engine, etl_assets.definitions
except Exception as error:
    sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
"""
_TRY_AGAIN_SECONDS = 60.0


@click.command(
    epilog="\b\nExamples:\n  etl-assets engine            # in the foreground, until Ctrl-C\n  etl-assets"
    " engine --status"
)
@click.option("--status", "only_status", is_flag=True, help="Say whether one is there, and stop.")
def engine(only_status: bool) -> None:
    """Serve runs of this installation from a warm Spark, in the foreground, until interrupted.

    `etl-assets dev` starts one by itself. Runs that it does not take are launched without it.
    """
    from etl_assets.engine import ipc as handing
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
    # A library's thread could hold a lock at the moment of a fork.
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
        _await_what_loads()
        os.execv(sys.executable, [sys.executable, "-m", "etl_assets.cli.main", "engine"])


def _await_what_loads() -> None:
    """Wait until code and settings can be loaded. Otherwise a half-saved file would end the engine."""
    from functools import partial

    from etl_assets.engine.parent import die_with

    # In another process: this one has the old modules, and any module may be the one that fails to load.
    command = [sys.executable, "-c", _LOAD]
    told = ""
    while True:
        state = _state()
        tried = subprocess.run(
            command, capture_output=True, text=True, check=False, preexec_fn=partial(die_with, os.getpid())
        )
        if tried.returncode == 0 and _state() == state:
            return
        if tried.returncode != 0:
            why = (tried.stderr.strip().splitlines() or ["it ended without a word"])[-1]
            if why != told:
                _say(f"waiting until code and settings can be loaded: {why}")
            told = why
            _await_a_change(state)


def _await_a_change(state: str) -> None:
    """Wait for a change of known files, or for a minute: files that were never loaded are not known."""
    deadline = time.monotonic() + _TRY_AGAIN_SECONDS
    while _state() == state and time.monotonic() < deadline:
        time.sleep(1.0)


def _state() -> str:
    from etl_assets.engine.code_version import loaded_state

    try:
        return loaded_state(os.environ)
    except OSError:  # a file or folder vanished during the comparison
        return ""


def _say(line: str) -> None:
    with suppress(OSError):  # a full or missing log must not end a run
        click.echo(f"engine: {line}", err=True)
