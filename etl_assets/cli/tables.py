"""`etl-assets tables`: the state of every table, and where to read it."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING

import click

from etl_assets.cli.restore import restore
from etl_assets.cli.table_path import path
from etl_assets.cli.undeclared import warn_of_unlisted
from etl_assets.cli.upkeep import clean_log, compact, vacuum

if TYPE_CHECKING:
    from etl_assets.delta.replicated.replication import Replication
    from etl_assets.observability.table_states import TableState
    from etl_assets.placement.domains import FailureDomain


@click.group(
    invoke_without_command=True,
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets tables\n"
        "  etl-assets tables --json | jq -r '.[] | select(.name == \"film_ratings\") | .uri'\n"
        "  etl-assets tables relocate film_ratings --to rack/b\n"
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, for machines.")
@click.pass_context
def tables(context: click.Context, as_json: bool) -> None:
    """Show every table: version, rows, and what it has consumed of its inputs.

    Other readers open a table by its uri at that version. A table that does not exist yet has no version. The
    cursor of a table that is made from files is its last batch of them; those of the others are versions of
    their inputs, for each day. The lag of a table is what it lacks of the tables that it reads; how far
    sources are behind is shown by `etl-assets doctor`. Captured tables have the phase that they are in; the
    copy, lag and error of each are shown by `etl-assets cdc tables`.
    """
    if context.invoked_subcommand is not None:
        return
    from etl_assets.captures import captured_tables
    from etl_assets.observability.table_states import table_states
    from etl_assets.settings import load_installation

    settings = load_installation()
    reader = settings.placement().reader()
    states = table_states(reader, dt.datetime.now(dt.UTC), captured=captured_tables(settings))
    if as_json:
        click.echo(json.dumps([state.as_json() for state in states]))
    else:
        _show(states)
    warn_of_unlisted(reader.catalog)


tables.add_command(path)
tables.add_command(restore)
tables.add_command(compact)
tables.add_command(vacuum)
tables.add_command(clean_log)


@tables.command()
@click.argument("table")
@click.option("--to", "domain", required=True, metavar="DOMAIN", help="Failure domain that is to lead it.")
def relocate(table: str, domain: str) -> None:
    """Let another allowed domain lead a mirrored table; its stage runs there from then on."""
    from etl_assets.errors import DomainUnavailable, MembershipRefused, NotFound, QuorumUnavailable
    from etl_assets.settings import load_installation

    placement = load_installation().placement()
    there = placement.named(domain)
    if there is None:
        names = ", ".join(each.name for each in placement.domains)
        known = any(site.name == domain for site in placement.sites)
        why = (
            f"{domain} is on an object store, and never leads"
            if known
            else f"there is no failure domain {domain}"
        )
        raise NotFound(why, fix=f"name one of {names}", domain=domain)
    lead_there = _mirrored(table, there)
    if not lead_there.exists():
        raise NotFound(
            f"{table} is not there yet", fix="relocate it once a first run has made it", table=table
        )
    stage = placement.catalog.placement_of(table)
    placement.expect_allowed(stage, domain, table=table)
    if (problem := placement.problem(there)) is not None:
        raise DomainUnavailable(
            f"{domain} cannot lead {table}: {problem}",
            fix="bring it back first: `etl-assets domains list`, `heal`",
            table=table,
            stage=stage.value,
            domain=domain,
        )
    # Check before the claim. That a replica's own register is outdated is only found by claiming.
    locator = lead_there.locator()
    state = None
    with suppress(QuorumUnavailable):  # a missing leader may be the reason for the relocation
        state = lead_there.acknowledged()
    if locator is not None and (problem := lead_there.problem(locator, state)) is not None:
        raise MembershipRefused(
            f"{domain} cannot lead {table}: {problem}",
            fix="let it join first: the next look at the failure domains sees to it, if the platform file"
            " makes it a voter and its root is in order (`etl-assets domains list`, `heal`)",
            table=table,
            domain=domain,
        )
    lead = lead_there.lead()
    click.echo(f"{table}: led by {domain} from version {lead.version} on, epoch {lead.epoch}")


@tables.command()
@click.argument("names", metavar="[TABLE]...", nargs=-1)
@click.option(
    "--contents",
    is_flag=True,
    help="Read all data files and compare their bytes, too. Takes as long as a copy.",
)
def verify(names: tuple[str, ...], contents: bool) -> None:
    """Compare every replica with what was acknowledged: log entries by their hash, data files by their size.

    With --contents the bytes of data files are compared as well, between the replicas.

    Exit code 1 if one is not whole, or does not answer.
    """
    whole = True
    for table, mirrored in _all_mirrored(names):
        problems = {domain: list(found) for domain, found in mirrored.broken().items()}
        for each in mirrored.differing() if contents else ():
            for domain in each.wrong:
                problems.setdefault(domain, []).append(str(each))
        for domain, found in problems.items():
            whole = whole and not found
            click.echo(f"{table} in {domain}: {'; '.join(found[:5]) or 'whole'}")
    if not whole:
        sys.exit(1)


@tables.command()
@click.argument("names", metavar="[TABLE]...", nargs=-1)
@click.option(
    "--contents",
    is_flag=True,
    help="Read all data files, and replace those that differ from most replicas', too.",
)
def repair(names: tuple[str, ...], contents: bool) -> None:
    """Rebuild replicas that are not whole from those that are.

    With --contents data files whose bytes differ are replaced by what most replicas have, the leader's as
    well.

    Exit code 1 if one could not be repaired. The leader's own is not rebuilt: relocate the table first; the
    message names a domain that may lead it. Nothing is written under a root that does not carry its domain's
    mark.
    """
    from etl_assets.errors import MirrorError, Unanswered

    done = True
    for table, mirrored in _all_mirrored(names, leading=True):
        for domain, problems in mirrored.broken().items():
            if not problems:
                continue
            try:
                mirrored.rebuild(domain)
            except (MirrorError, Unanswered) as error:
                done = False
                fix = _relocation(table, mirrored, domain) or error.fix
                click.echo(f"{table} in {domain}: {problems[0]}; not repaired: {error.message} ({fix})")
            else:
                click.echo(f"{table} in {domain}: {problems[0]}; rebuilt")
        for each in mirrored.differing() if contents else ():
            where = f"{table} in {', '.join(each.wrong)}: {each}"
            try:
                mirrored.repair_files(each)
            except (MirrorError, Unanswered) as error:
                done = False
                click.echo(f"{where}; not repaired ({error.fix})")
            else:
                click.echo(f"{where}; replaced")
    if not done:
        sys.exit(1)


def _all_mirrored(names: tuple[str, ...], *, leading: bool = False) -> Iterator[tuple[str, Replication]]:
    """Yield the tables named, or all; those that do not exist yet are left out."""
    from etl_assets.settings import load_installation
    from etl_assets.steps.placing import leader

    placement = load_installation().placement()
    for table in names or placement.catalog.every_name():
        mirrored = _mirrored(table, placement.reader())
        if not mirrored.exists():
            continue
        led_by = placement.named(leader(placement, table) or "") if leading else None
        yield table, mirrored if led_by is None else _mirrored(table, led_by)
    if not names:
        warn_of_unlisted(placement.catalog)


def _relocation(table: str, mirrored: Replication, domain: str) -> str | None:
    """Return the command to run first if the leader itself blocks the repair; else None.

    It does so if its replica is the damaged one, or if it has lost its register.
    """
    from etl_assets.settings import load_installation
    from etl_assets.steps.placing import another_leader

    locator = mirrored.locator()
    if domain != mirrored.home and (locator is None or mirrored.problem(locator) is None):
        return None
    other = another_leader(load_installation().placement(), table, mirrored.home)
    return (
        None if other is None else f"`etl-assets tables relocate {table} --to {other}`, then run this again"
    )


def _mirrored(table: str, domain: FailureDomain) -> Replication:
    from etl_assets.errors import InputError
    from etl_assets.steps.step import platform_table

    mirrored = platform_table(table, domain).replication
    if mirrored is None:
        raise InputError(
            "there is one failure domain: tables have no replicas",
            fix="name several `domains` in the platform file; see docs/operations.md",
        )
    return mirrored


def _show(states: list[TableState]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    table.add_column("table", no_wrap=True)
    table.add_column("version", justify="right")
    table.add_column("rows", justify="right")
    table.add_column("last commit (UTC)", no_wrap=True)
    table.add_column("lag")
    if has_phases := any(state.captured is not None for state in states):
        table.add_column("phase")
    for state in states:
        table.add_row(
            state.name,
            "" if state.version is None else str(state.version),
            "" if state.version is None else f"{state.rows:,}",
            "not there yet" if state.last_commit_at is None else _time(state.last_commit_at),
            "" if state.lag is None else str(state.lag),
            *(() if not has_phases else ("" if (of := state.captured) is None else of.state.phase.value,)),
        )
    console = Console()
    console.print(table)
    for state in states:
        if state.cursor:
            click.echo(f"{state.name} has read {', '.join(_in_short(state.cursor))}")
    for state in states:
        if state.taken_back:
            click.echo(f"{state.name} waits for days to be made again: {', '.join(state.taken_back)}")
    captured = [state.captured for state in states if state.captured is not None]
    for capture in dict.fromkeys(each.state.capture for each in captured):
        phases = Counter(each.state.phase.value for each in captured if each.state.capture == capture)
        found = ", ".join(f"{number} {phase}" for phase, number in phases.items())
        click.echo(
            f"capture {capture}: {found}   their copies, lag and errors: etl-assets cdc tables {capture}"
        )
    for root in dict.fromkeys(state.root for state in states):
        click.echo(f"Tables: {root}   their uris: etl-assets tables --json")


def _in_short(cursor: Mapping[str, int]) -> Iterator[str]:
    """Yield, for each input, the version it has been read up to, or the range of versions over its days."""
    for source, names in groupby(cursor, key=lambda name: name.partition("/")[0]):
        days = list(names)
        versions = [cursor[name] for name in days]
        span = f"{min(versions)}" if min(versions) == max(versions) else f"{min(versions)} to {max(versions)}"
        whole = len(days) == 1 and days[0].partition("/")[2] in ("", "*")
        yield (
            f"{source} {span}"
            if whole
            else f"{source} {span} ({len(days):,} {'day' if len(days) == 1 else 'days'})"
        )


def _time(at: dt.datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")
