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
    JSON,
    SHOWN_OF_ID,
    Narrowing,
    counted,
    narrowing,
    say,
    settings_and_domain,
    short,
    sink_stages,
)
from etl_assets.contracts.reasons import DeadLetterState

if TYPE_CHECKING:
    from etl_assets.errors import InputError, RunFailed
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
        "  etl-assets dead-letters replay --all-open --sink postgres --since 2026-03-01\n"
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
@narrowing("With --all-open: ")
@JSON
def replay(
    ids: tuple[str, ...],
    record: Path | None,
    all_open: bool,
    narrowing: Narrowing,
    as_json: bool,
) -> None:
    """Submit open dead letters again, run their days, and report the result of each.

    A row that the target of a sink refused is delivered again, as its table has it now. Exit code 1 if a
    record or a row did not get in. Replaying twice changes nothing.
    """
    from etl_assets.observability.dead_letters import find_letters

    _check_call(ids, record, all_open, narrowed=bool(narrowing))
    settings, domain = settings_and_domain()
    if all_open:
        letters = _all_open(domain, narrowing.filter(DeadLetterState.OPEN), settings.start_date)
    else:
        letters = find_letters(domain, ids)
        if (problem := _without_partition(letters, settings.start_date)) is not None:
            raise problem
    if not letters:
        click.echo("[]" if as_json else "no open dead letter is such: nothing to do")
        return
    correction = None if record is None else _read_record(record, settings.landing.max_record_bytes)
    results, failed = _replay(settings, domain, letters, correction, leaves_out=all_open)
    if as_json:
        click.echo(json.dumps([result.as_json() for result in results]))
    else:
        _show_results(results)
    if failed is not None:
        raise failed
    if any(result.result not in ("replayed", "duplicate") for result in results):
        sys.exit(1)


def _check_call(ids: Sequence[str], record: Path | None, all_open: bool, *, narrowed: bool) -> None:
    if bool(ids) == all_open:
        raise click.UsageError("name letters by ID, or take --all-open")
    if record is not None and len(ids) != 1:
        raise click.UsageError("--record is for one letter: name it alone")
    if narrowed and not all_open:
        raise click.UsageError("--reason, --stage, --sink, --day, --since and --until go with --all-open")


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


def _all_open(domain: FailureDomain, wanted: DeadLetterFilter, start_date: dt.date) -> list[DeadLetter]:
    """Return the open dead letters that can be replayed unchanged. The others are named on stderr."""
    from etl_assets.observability.dead_letters import read_dead_letters
    from etl_assets.observability.submit_replays import is_of_removed_pipeline

    left: list[DeadLetter] = []
    of_sinks = sink_stages(domain.catalog)
    for letter in read_dead_letters(domain, **wanted.values()):
        if not wanted.has_time(letter.failed_at):
            continue
        if letter.is_cut_off and letter.stage not in of_sinks:
            say(f"{short(letter)} is left out: its record was cut off, replay it with --record FILE")
        elif is_of_removed_pipeline(letter, domain.catalog):
            say(f"{short(letter)} is left out: no pipeline of this installation has the stage {letter.stage}")
        elif (problem := _without_partition([letter], start_date)) is not None:
            _say_left_out(letter, problem)
        else:
            left.append(letter)
    return sorted(left, key=lambda each: each.failed_at)


def _without_partition(letters: Sequence[DeadLetter], start_date: dt.date) -> InputError | None:
    """Return the error about dead letters of days before the first partition; None if there are none."""
    from etl_assets.errors import InputError

    early = sorted({letter.partition_date for letter in letters if letter.partition_date < start_date})
    if not early:
        return None
    return InputError(
        f"there are no partitions for {', '.join(day.isoformat() for day in early)}: they start on"
        f" {start_date}",
        fix=f"set start_date to {early[0]} or earlier in the platform file",
    )


def _replay(
    settings: Settings,
    domain: FailureDomain,
    letters: Sequence[DeadLetter],
    correction: bytes | None,
    *,
    leaves_out: bool,
) -> tuple[list[Replayed], RunFailed | None]:
    """Return the results, and the failure of a run: some dead letters wait then, others may be done.

    With `leaves_out`, those that cannot be submitted are named on stderr, and stop no other.
    """
    from etl_assets.contracts.tables import REPLAYS
    from etl_assets.errors import EtlAssetsError, RunFailed
    from etl_assets.observability.submit_replays import hand_in, outcomes
    from etl_assets.steps.placing import place

    where = place(settings.placement(), REPLAYS.name)
    handed_in = hand_in(where, letters, correction, left_out=_say_left_out if leaves_out else None)
    if not handed_in:
        return [], None
    say(f"{counted(handed_in)} handed in; Spark starts with the first run")
    failed = None
    try:
        _run(settings, handed_in)
    except EtlAssetsError as error:
        error.fix += (
            "; the letters stay handed in, and replaying them again, or the next run of their days or to"
            " their sink, goes on"
        )
        if not isinstance(error, RunFailed):
            raise
        failed = error
    return outcomes(domain, handed_in), failed


def _say_left_out(letter: DeadLetter, error: InputError) -> None:
    say(f"{short(letter)} is left out: {error.message}; {error.fix}")


def _run(settings: Settings, handed_in: Sequence[HandedIn]) -> None:
    """Run the stages that read the replays.

    A replay to a source runs the assets of its pipeline; another one runs the stage that takes it, and all
    that is made from its table. Replays to sinks run all of their deliveries, also if one of them is down.
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
        if sinks := [name for name, target in targets.items() if target.delivers]:
            say(f"delivering {', '.join(sinks)}")
            rejects = [each.name for name in sinks if (each := targets[name].rejects) is not None]
            today = dt.datetime.now(dt.UTC).date()
            assets = _assets(catalog, [*sinks, *rejects])
            materialize_days(settings, instance, [today], mode=ReadMode.INCREMENTAL, assets=assets)
        for name, target in targets.items():
            if target.delivers:
                continue
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
        if result.detail is not None:
            text += f" by {result.stage}: {result.detail} (attempt {result.attempt})"
        elif result.result == "replayed":
            text += f": event {result.event_id} is in (attempt {result.attempt})"
        elif result.result == "refused":
            text += f" again by {result.stage}: {result.reason}: {result.error}"
        elif result.result == "duplicate":
            text += f": {result.error}"
        else:
            text += f": {result.stage} has not judged it yet; its next run does"
        click.echo(text)


def _days(days: Collection[dt.date]) -> str:
    return min(days).isoformat() if len(days) == 1 else f"{len(days):,} days from {min(days)} to {max(days)}"
