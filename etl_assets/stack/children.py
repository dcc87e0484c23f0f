"""Commands of an installation as children of this process, which end with it.

Belongs here: starting, waiting, ending. Does not belong here: servers (`process.py`), and what is called in
which order, which is a demo's own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO, Any

import click

from etl_assets import environment
from etl_assets.engine.parent import die_with

_SAY_EVERY_SECONDS = 10
_ENDING_SECONDS = 30
_FIRST_WAIT_SECONDS = 5


def environ_of(home: Path, secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a demo's commands: its home folder and passwords beside this process's."""
    left_out = (environment.PLATFORM_FILE.name, environment.SPARK_MASTER.name)
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, environment.HOME.name: str(home), **secrets}


def call(
    environ: Mapping[str, str],
    *arguments: str,
    tell: bool = False,
    out: IO[Any] | None = None,
    ended_by: signal.Signals = signal.SIGKILL,
) -> int:
    """Run a command of the installation, such as `run`, to its end and return its exit code.

    Args:
        environ: The whole environment of the command, which names the installation.
        arguments: The command.
        tell: Whether to show that it goes on instead of its output.
        out: Receives its output in place of this process's.
        ended_by: What it gets when this process is killed.
    """
    process = _start(environ, *arguments, out=subprocess.DEVNULL if tell else out, ended_by=ended_by)
    began = time.monotonic()
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(_SAY_EVERY_SECONDS)
            if tell:
                click.echo(f"    under way for {time.monotonic() - began:.0f} s", err=True)
    finally:
        end(process)


@contextmanager
def running(environ: Mapping[str, str], *arguments: str, log: IO[Any]) -> Generator[subprocess.Popen[bytes]]:
    """Run a command of the installation during a block.

    Args:
        environ: The whole environment of the command.
        arguments: The command.
        log: Receives its output.
    """
    process = _start(environ, *arguments, out=log, ended_by=signal.SIGTERM)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a child. A Ctrl-C in a terminal has reached it as well: it is given time to end by that."""
    waits: tuple[tuple[signal.Signals | None, float], ...] = (
        (None, _FIRST_WAIT_SECONDS),
        (signal.SIGTERM, _ENDING_SECONDS),
        (signal.SIGKILL, _ENDING_SECONDS),
    )
    for number, seconds in waits:
        if process.poll() is not None:
            return
        if number is not None:
            process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


@contextmanager
def ended_by_signals() -> Generator[None]:
    """Leave the block by an exception at SIGTERM and SIGHUP too, so that everything is ended."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    # What is ignored stays so: `nohup` does that.
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    former = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _start(
    environ: Mapping[str, str], *arguments: str, out: int | IO[Any] | None, ended_by: signal.Signals
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "etl_assets.cli.main", *arguments],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out if out != subprocess.DEVNULL else None,
        preexec_fn=partial(die_with, os.getpid(), ended_by),
    )
