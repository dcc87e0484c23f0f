"""The tables that an earlier commit and this checkout make of the same landing files, compared value by
value.

Belongs here: both sides, each with `etl-assets run` in a home folder of its own, and every deviation between
their tables. Does not belong here: figures of time and space (`cases/`).

`python -m benchmarks.same_tables --base COMMIT [--olist FOLDER] [--events 1000000]`

The files come in two halves, with a run after each, so that the second run meets what the first one left.
What both sides have is compared by `table_comparison.py`.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.input import bulk_input
from benchmarks.options import Options
from benchmarks.table_comparison import table_differences

_CHECKOUT = Path(__file__).parents[1]
_COMMAND = "from etl_assets.cli.main import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The code of one commit and its home folder."""

    name: str
    code: Path
    home: Path

    def begin(self, start_date: str, customers: Path | None) -> None:
        """Write the platform file and the reference data."""
        self.landing.mkdir(parents=True)
        settings = {"start_date": start_date, "landing": {"settle_seconds": 0}}
        (self.home / "platform.yaml").write_text(json.dumps(settings), "utf-8")
        if customers is not None:
            (self.landing / "_reference").mkdir()
            shutil.copy(customers, self.landing / "_reference" / customers.name)

    @property
    def landing(self) -> Path:
        return self.home / "landing"

    def run(self) -> tuple[float, dict[str, dict[str, int]]]:
        """Run `etl-assets run`; return its seconds and figures."""
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", _COMMAND, "run", "--json"],
            env={**os.environ, "PYTHONPATH": str(self.code), "ETL_ASSETS_HOME": str(self.home)},
            cwd=self.home,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise click.ClickException(f"{self.name}: exit code {done.returncode}\n{done.stderr[-4_000:]}")
        return time.monotonic() - began, json.loads(done.stdout)

    def tables(self) -> dict[str, Path]:
        """The newest folder of each table."""
        folders = sorted((self.home / "data" / "tables").glob("*/g*"))
        return {folder.parent.name: folder for folder in folders}


@click.command()
@click.option("--base", required=True, metavar="COMMIT", help="The commit to compare with.")
@click.option(
    "--olist", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Real orders, too."
)
@click.option("--events", default=1_000_000, show_default=True, help="Generated events; 0 for none.")
@click.option("--keep", is_flag=True, help="Keep the home folders.")
def main(base: str, olist: Path | None, events: int, keep: bool) -> None:
    """Compare the tables of this checkout with those of COMMIT. The exit code is 1 if anything differs."""
    options = Options()
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="same-tables-", dir=options.folder))
    _unpack(base, folder / "before")
    shutil.copytree(_CHECKOUT / "etl_assets", folder / "after" / "etl_assets")
    deviations = []
    try:
        for name, landing in _inputs(options.folder, folder, olist, events):
            sides = tuple(
                Side(name=side, code=folder / side, home=folder / f"{name}-{side}")
                for side in ("before", "after")
            )
            deviations += [f"{name}: {each}" for each in _compare_runs(sides, landing)]
            click.echo(f"{name}: {'differs' if deviations else 'the same tables'}")
    finally:
        if not keep:
            shutil.rmtree(folder)
    click.echo("\n".join(deviations))
    sys.exit(bool(deviations))


def _unpack(commit: str, folder: Path) -> None:
    archive = subprocess.run(
        ["git", "-C", str(_CHECKOUT), "archive", commit, "etl_assets"], check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


def _inputs(kept: Path, folder: Path, olist: Path | None, events: int) -> Iterator[tuple[str, Path]]:
    from etl_assets.orders.generator.faults import FaultRates
    from etl_assets.orders.generator.olist import convert

    if olist is not None:
        rates = FaultRates(duplicates=0.02, conflicts=0.001, malformed=0.001)
        convert(olist, folder / "olist", rates=rates)
        yield "olist", folder / "olist"
    if events:
        yield "generated", bulk_input(kept, events).landing


def _compare_runs(sides: tuple[Side, ...], landing: Path) -> Iterator[str]:
    files = sorted(path for path in landing.glob("[0-9]*/*") if not path.name.startswith("."))
    customers = next(landing.glob("_reference/*.csv"), None)
    for side in sides:
        side.begin(files[0].parent.name, customers)
    for half in _halves(files):
        figures = []
        for side in sides:
            for file in half:
                target = side.landing / file.parent.name / file.name
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, target)
            seconds, found = side.run()
            figures.append(found)
            click.echo(f"  {side.name}: {len(half):,} files, {seconds:.0f} s, {json.dumps(found)}", err=True)
        if figures[0] != figures[1]:
            yield f"the runs report {figures[0]} before and {figures[1]} after"
    yield from _differences(*sides)


def _halves(files: list[Path]) -> tuple[list[Path], list[Path]]:
    """Every other file of each day, and the others; of days with one file the first half, so that runs
    span many days.
    """
    days = len({file.parent for file in files})
    if days < len(files):
        return files[::2], files[1::2]
    return files[: days // 2], files[days // 2 :]


def _differences(before: Side, after: Side) -> Iterator[str]:
    one, other = before.tables(), after.tables()
    if one.keys() != other.keys():
        yield f"tables: {sorted(one.keys() ^ other.keys())} only on one side"
    for table in sorted(one.keys() & other.keys()):
        yield from (f"{table}: {each}" for each in table_differences(table, one[table], other[table]))


if __name__ == "__main__":
    main()
