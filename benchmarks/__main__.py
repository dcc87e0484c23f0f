"""The command: `python -m benchmarks [CASE ...] [--runs N] [--events N] ...`."""

from __future__ import annotations

import compileall
import signal
import sys
from pathlib import Path

import click

import benchmarks
import etl_assets
from benchmarks.cases import CASES
from benchmarks.options import Options
from benchmarks.peers import PeerUnavailable
from benchmarks.report import RESULTS, keep, show

_DEFAULTS = Options()


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.argument("cases", nargs=-1, type=click.Choice(list(CASES)), metavar=f"[{'|'.join(CASES)}]...")
@click.option("--runs", default=_DEFAULTS.runs, type=click.IntRange(1), help="Runs of each side.")
@click.option("--events", default=_DEFAULTS.events, type=click.IntRange(1_000), help="bulk: good events.")
@click.option("--days", default=_DEFAULTS.days, type=click.IntRange(1), help="history: days before.")
@click.option("--files", default=_DEFAULTS.files, type=click.IntRange(1), help="history: files before.")
@click.option("--seconds", default=_DEFAULTS.seconds, type=click.IntRange(20), help="steady: seconds.")
@click.option("--spark", multiple=True, metavar="KEY=VALUE", help="A Spark setting, for both sides.")
@click.option(
    "--results", default=RESULTS, type=click.Path(file_okay=False, path_type=Path), help="Where figures go."
)
def main(
    cases: tuple[str, ...],
    runs: int,
    events: int,
    days: int,
    files: int,
    seconds: int,
    spark: tuple[str, ...],
    results: Path,
) -> None:
    """Measure the platform beside others on this machine: the CASES named, or all."""
    # A benchmark that is told to end takes the process it measures with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    _write_bytecode()
    settings = dict(setting.split("=", 1) for setting in spark)
    options = Options(runs=runs, events=events, days=days, files=files, seconds=seconds, spark=settings)
    left_out = False
    for name in cases or CASES:
        click.echo(f"{name}: data and tables in {options.folder}", err=True)
        try:
            figures = CASES[name](options)
        except PeerUnavailable as error:
            click.echo(f"{name} is left out: {error}", err=True)
            left_out = True
            continue
        show(figures)
        click.echo(f"kept in {keep(figures, results)}")
    sys.exit(left_out)


def _write_bytecode() -> None:
    """Write the bytecode of a checkout, as pip has written that of the peers and of all other packages.

    Where Python is told not to (`PYTHONDONTWRITEBYTECODE`), each process would compile each module again.
    """
    for package in (etl_assets, benchmarks):
        for folder in package.__path__:
            compileall.compile_dir(folder, quiet=1)


if __name__ == "__main__":
    main()
