"""`etl-assets run`: materialize new input once. Dagster and Spark are loaded only if there is work."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections import Counter
from typing import TYPE_CHECKING

import click

from etl_assets.cli.dead_letter_options import say
from etl_assets.cli.settling import look_until_settled, say_what_is_left

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from etl_assets.cli.paused_sources import PausedSources
    from etl_assets.observability.pending import Unfinished, UnreadFiles
    from etl_assets.settings import Settings


@click.command(
    epilog="\b\nExamples:\n  etl-assets run\n  etl-assets run --json | jq .film_ratings.inserted\n"
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option(
    "--wait/--no-wait", default=True, help="Wait for files that changed just now (landing.settle_seconds)."
)
def run(as_json: bool, wait: bool) -> None:
    """Materialize what is unread, once, and what a run that was killed has left undone.

    The runs are Dagster's, in this process. With nothing to do it says so, without loading Dagster or Spark;
    so it does where a worker lives, which reads new files as they come. Files that have just come are waited
    for. A source that is paused because a sink is over its lag limit is read after the sink has what it
    lacked. Pipelines that run control keeps from being followed are left alone, and named. The exit code is 1
    if a day cannot be read, a file is still being written (the other days are done all the same), a source
    stays paused, or rows are missing that no run brings back.
    """
    from etl_assets.cli.paused_sources import PausedSources
    from etl_assets.errors import RunFailed
    from etl_assets.observability.pending import find_unfinished, unread
    from etl_assets.settings import expect_landing_folder, load_installation
    from etl_assets.steps.placing import once_led
    from etl_assets.worker.lease import running_worker

    settings = load_installation()
    if settings.catalog().reads_landing:
        expect_landing_folder(settings)
    worker = running_worker(settings.home)
    if worker is not None and not worker.is_silent:
        say(f"{worker} reads new files as they come: nothing to do here")
        _print({}, as_json)
        return
    placement = settings.placement()
    found = look_until_settled(
        lambda: once_led(placement, lambda: unread(settings, now=dt.datetime.now(dt.UTC))), wait=wait
    )
    unfinished = once_led(placement, lambda: find_unfinished(placement.reader(), settings.start_date))
    paused = PausedSources(settings)
    _say_what_is_left_alone(paused)
    found, unfinished = found.without(paused.controlled), paused.left_to_do(unfinished)
    begun = found.without(paused.tables)
    days = sorted({*begun.ready, *unfinished.days})
    _say_what_there_is(found, unfinished, days)
    try:
        # How much a day reads that a killed run has left undone is not known.
        sizes = {day: size for day, size in found.sizes.items() if day not in unfinished.days}
        made = _materialize(settings, days, unfinished.replays, sizes, paused) if days else Counter()
        if resumed := found.without({*begun.by_source, *paused.look_again()}).ready:
            made += _materialize(settings, resumed, {}, sizes, paused)
        _print(_by_table(made), as_json)
    except RunFailed as error:
        from etl_assets.cli.run_figures import figures_of

        _print(_by_table(figures_of(error.materializations, settings.catalog())), as_json)
        raise
    if found.unsettled:
        say_what_is_left(found.unsettled, settle_seconds=found.longest_settle_seconds)
    unread_still = [
        name
        for name in sorted(paused.look_again())
        if name in found.by_source and found.by_source[name].ready
    ]
    if unread_still:
        say(f"not read, because a sink is over its lag limit: {', '.join(unread_still)}")
    if any((found.unreadable, found.unsettled, unfinished.missing, unfinished.before_start, unread_still)):
        sys.exit(1)


def _say_what_is_left_alone(paused: PausedSources) -> None:
    from etl_assets.control.states import fix_of
    from etl_assets.observability.lag_limits import FIX

    for pause in paused.look():
        say(f"{pause}\n  fix: {FIX}")
    for name, state in paused.states.items():
        say(f"{name} is {state} and left alone\n  fix: {fix_of(name, state)}")
    if paused.problem is not None:
        say(f"{paused.problem}; pipelines are treated as they were known last")


def _say_what_there_is(found: UnreadFiles, unfinished: Unfinished, days: Collection[dt.date]) -> None:
    from etl_assets.observability.pending import RUN_COMPLETES

    remarks = list(found.remarks(unsettled=False))
    for remark in remarks:
        say(remark)
    for undone, fix in unfinished.sentences():
        say(undone if fix is RUN_COMPLETES else f"{undone}\n  fix: {fix}")
    if days:
        say(f"{len(days):,} days to materialize; Spark starts with the first")
    elif remarks or found.unsettled or unfinished.missing or unfinished.before_start:
        say("nothing else to do: every table has read its inputs")
    else:
        say("nothing to do: every file is read, and every table is up to date with its inputs")


def _print(figures: dict[str, dict[str, int]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(figures))
        return
    for table, of_table in figures.items():
        click.echo(f"{table}: " + ", ".join(f"{value:,} {name}" for name, value in of_table.items()))


def _materialize(
    settings: Settings,
    days: Collection[dt.date],
    replays: Mapping[str, Collection[dt.date]],
    sizes: Mapping[dt.date, int],
    paused: PausedSources,
) -> Counter[str]:
    """Return the metrics by `<table>.<name>`.

    Days of `replays` are first read as a whole by the tables that take replays, as `dead-letters replay`
    does.
    """
    from etl_assets.cli.run_figures import run_figures
    from etl_assets.instance import open_instance
    from etl_assets.runs import materialize_days
    from etl_assets.steps.step import ReadMode

    totals: Counter[str] = Counter()
    with open_instance(settings) as instance:
        for table, of_table in replays.items():
            materialize_days(settings, instance, of_table, mode=ReadMode.WHOLE, assets=[table])
        for result in materialize_days(
            settings, instance, days, mode=ReadMode.INCREMENTAL, sizes=sizes, paused=paused.look_again
        ):
            totals += run_figures(result, settings.catalog())
    return totals


def _by_table(totals: Mapping[str, int]) -> dict[str, dict[str, int]]:
    figures: dict[str, dict[str, int]] = {}
    for key, value in totals.items():
        table, _, name = key.partition(".")
        figures.setdefault(table, {})[name] = value
    return figures
