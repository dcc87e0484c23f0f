"""`etl-assets dead-letters replay`: submit replays of dead letters, run their days, and report each result.

Belongs here: the order of these steps, and the display of results. Does not belong here: submitting replays
and determining their results (`observability/submit_replays.py`).
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from etl_assets.cli.dead_letter_options import (
    DAY,
    JSON,
    REASON,
    SHOWN_OF_ID,
    STAGE,
    counted,
    letter_filter,
    say,
    settings_and_domain,
    short,
)
from etl_assets.contracts.reasons import DeadLetterState

if TYPE_CHECKING:
    from etl_assets.observability.dead_letters import DeadLetter, DeadLetterFilter
    from etl_assets.observability.submit_replays import HandedIn, Replayed
    from etl_assets.pipelines.catalog import Catalog
    from etl_assets.pipelines.stage import Stage
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import Settings


@click.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets dead-letters replay 3795bfb3 --record fixed.json\n"
        "  etl-assets dead-letters replay --all-open --reason UnknownEventType\n"
    )
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option(
    "--record",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Corrected content for one letter: the whole event if ingest refused it, the payload alone if"
    " normalize did, the whole record of a declared pipeline.",
)
@click.option("--all-open", is_flag=True, help="All open letters that the options below name, as they came.")
@click.option("--reason", type=REASON, metavar="REASON", help="With --all-open: refused for this reason.")
@click.option("--stage", type=STAGE, help="With --all-open: refused by this stage.")
@click.option("--day", type=DAY, metavar="YYYY-MM-DD", help="With --all-open: arrived on this day.")
@JSON
def replay(
    ids: tuple[str, ...],
    record: Path | None,
    all_open: bool,
    reason: str | None,
    stage: str | None,
    day: dt.datetime | None,
    as_json: bool,
) -> None:
    """Submit open dead letters again, run their days, and report the result of each.

    Exit code 1 if a record did not get in. Replaying twice changes nothing.
    """
    from etl_assets.observability.dead_letters import find_letters

    _check_call(ids, record, all_open, narrowed=bool(reason or stage or day))
    settings, domain = settings_and_domain()
    letters = (
        _all_open(domain, letter_filter(DeadLetterState.OPEN, stage, reason, day))
        if all_open
        else find_letters(domain, ids)
    )
    if not letters:
        click.echo("[]" if as_json else "no open dead letter is such: nothing to do")
        return
    _check_days(settings, letters)
    correction = None if record is None else _read_record(record, settings.landing.max_record_bytes)
    results = _replay(settings, domain, letters, correction)
    if as_json:
        click.echo(json.dumps([result.as_json() for result in results]))
    else:
        _show_results(results)
    if any(result.result not in ("replayed", "duplicate") for result in results):
        sys.exit(1)


def _check_call(ids: Sequence[str], record: Path | None, all_open: bool, *, narrowed: bool) -> None:
    if bool(ids) == all_open:
        raise click.UsageError("name letters by ID, or take --all-open")
    if record is not None and len(ids) != 1:
        raise click.UsageError("--record is for one letter: name it alone")
    if narrowed and not all_open:
        raise click.UsageError("--reason, --stage and --day go with --all-open")


def _read_record(file: Path, most_bytes: int) -> bytes:
    """Read a corrected record, and no more of the file than the platform accepts."""
    from etl_assets.errors import InputError

    with file.open("rb") as opened:
        record = opened.read(most_bytes + len(b"\r\n") + 1)
    if len(record.rstrip(b"\r\n")) > most_bytes or len(record) > most_bytes + len(b"\r\n"):
        raise InputError(
            f"{file} has more than the {most_bytes:,} bytes that are taken of a record",
            fix="make the record smaller, or raise landing.max_record_bytes",
        )
    return record


def _all_open(domain: FailureDomain, wanted: DeadLetterFilter) -> list[DeadLetter]:
    """Return the open dead letters that can be replayed unchanged. The others are named on stderr."""
    from etl_assets.observability.dead_letters import read_dead_letters
    from etl_assets.observability.submit_replays import is_of_removed_pipeline, is_of_sink

    left: list[DeadLetter] = []
    for letter in read_dead_letters(domain, **wanted.values()):
        if letter.is_cut_off:
            say(f"{short(letter)} is left out: its record was cut off, replay it with --record FILE")
        elif is_of_removed_pipeline(letter, domain.catalog):
            say(f"{short(letter)} is left out: no pipeline of this installation has the stage {letter.stage}")
        elif is_of_sink(letter, domain.catalog):
            say(
                f"{short(letter)} is left out: it is a row that a target rejected; materialize {letter.stage}"
            )
        else:
            left.append(letter)
    return sorted(left, key=lambda each: each.failed_at)


def _check_days(settings: Settings, letters: Sequence[DeadLetter]) -> None:
    from etl_assets.errors import InputError

    early = sorted(
        {letter.partition_date for letter in letters if letter.partition_date < settings.start_date}
    )
    if early:
        raise InputError(
            f"there are no partitions for {', '.join(day.isoformat() for day in early)}: they start on"
            f" {settings.start_date}",
            fix=f"set start_date to {early[0]} or earlier in the platform file",
        )


def _replay(
    settings: Settings, domain: FailureDomain, letters: Sequence[DeadLetter], correction: bytes | None
) -> list[Replayed]:
    from etl_assets.contracts.tables import REPLAYS
    from etl_assets.errors import EtlAssetsError
    from etl_assets.observability.submit_replays import hand_in, outcomes
    from etl_assets.steps.placing import place

    where = place(settings.placement(), REPLAYS.name)
    handed_in = hand_in(where, letters, correction)
    say(f"{counted(handed_in)} handed in; Spark starts with the first run")
    try:
        _run(settings, handed_in)
    except EtlAssetsError as error:
        error.fix += (
            "; the letters stay handed in, and replaying them again, or the next run of their days, goes on"
        )
        raise
    return outcomes(domain, handed_in)


def _run(settings: Settings, handed_in: Sequence[HandedIn]) -> None:
    """Run the stages that read the replays.

    A replay to a source runs the assets of its pipeline; another one runs the stage that takes it, and all
    that is made from its table.
    """
    from etl_assets.instance import open_instance
    from etl_assets.runs import materialize_days
    from etl_assets.steps.step import ReadMode

    catalog = settings.catalog()
    targets = {each.target.name: each.target for each in handed_in}
    days = {name: {each.day for each in handed_in if each.target.name == name} for name in targets}
    if waiting := [each.target for each in handed_in if each.is_new and each.target.source is not None]:
        _wait_until_settled(settings, waiting)
    with open_instance(settings) as instance:
        for name, target in targets.items():
            say(f"running {_days(days[name])} from {target.name_in_rejects} on")
            if target.source is not None:
                pipeline = catalog.pipeline_of(name)
                assert pipeline is not None
                assets = _assets(catalog, {stage.name for stage in pipeline.stages})
                materialize_days(settings, instance, days[name], mode=ReadMode.INCREMENTAL, assets=assets)
                continue
            # The stage reads whole days, to validate old events again. Later assets read only new rows.
            materialize_days(settings, instance, days[name], mode=ReadMode.WHOLE, assets=[name])
            after = [each for each in _assets(catalog, {name}) if each != name]
            materialize_days(settings, instance, days[name], mode=ReadMode.INCREMENTAL, assets=after)


def _assets(catalog: Catalog, names: Collection[str]) -> list[str]:
    """Return some assets and all that are made from their tables."""
    downstream = catalog.downstream_of(names)
    return [stage.name for stage in catalog.stages if stage.name in downstream]


def _wait_until_settled(settings: Settings, targets: Sequence[Stage]) -> None:
    """Wait until the submitted files, which are new, count as complete."""
    from etl_assets.observability.pending import source_of

    domain = settings.placement().reader()
    settle_seconds = max(source_of(each, settings, domain).settle_seconds for each in targets)
    if settle_seconds > 5:
        say(f"waiting {settle_seconds:g} s (settle_seconds) until the new files count as complete")
    time.sleep(settle_seconds + 0.1)


def _show_results(results: Sequence[Replayed]) -> None:
    for result in results:
        text = f"{result.dead_letter_id[:SHOWN_OF_ID]} {result.result.value}"
        if result.result == "replayed":
            text += f": event {result.event_id} is in (attempt {result.attempt})"
        elif result.result == "refused":
            text += f" again by {result.stage}: {result.reason}: {result.error}"
        elif result.result == "duplicate":
            text += f": {result.error}"
        else:
            text += ": no stage has judged it yet; the next run of its day does"
        click.echo(text)


def _days(days: Collection[dt.date]) -> str:
    return min(days).isoformat() if len(days) == 1 else f"{len(days):,} days from {min(days)} to {max(days)}"
