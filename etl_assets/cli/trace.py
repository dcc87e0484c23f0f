"""`etl-assets trace`: the full history of one record in one answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from etl_assets.cli.traced import list_traced

if TYPE_CHECKING:
    from etl_assets.observability.history import History, HistoryEntry
    from etl_assets.settings import Settings


@click.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets trace 01a1dcac-717f-7e0b-8db9-aeca2d71850d\n"
        "  etl-assets trace 01a1dcac-717f-7e0b-8db9-aeca2d71850d --json | jq .happenings\n"
        "  etl-assets trace 4711 --pipeline film_ratings\n"
        "  etl-assets trace '[\"north\", 7]'\n"
        "  etl-assets trace --trace-id 4bf92f3577b34da6a3ce929d0e0e4736\n"
    )
)
@click.argument("record_id", metavar="[ID]", required=False)
@click.option("--trace-id", metavar="HEX", help="List the records of this W3C trace instead.")
@click.option("--pipeline", metavar="NAME", help="Look in this pipeline alone.")
@click.option("--json", "as_json", is_flag=True, help="Print one object, for machines.")
def trace(record_id: str | None, trace_id: str | None, pipeline: str | None, as_json: bool) -> None:
    """Show where a record came from, and what every stage and sink made of it and when.

    ID is its id: an event's, or the value of the declared `id` of a pipeline; of several fields, their values
    as a JSON list. File, line and offset, duplicates and conflicts seen of it, its dead letters and replays,
    deliveries, and its present state. Read from the stages' own tables, in every pipeline that has the id.
    """
    from etl_assets.observability.find_history import json_value
    from etl_assets.settings import load_installation

    if (record_id is None) == (trace_id is None):
        raise click.UsageError("say ID or --trace-id")
    settings = load_installation()
    if trace_id is not None:
        list_traced(settings, trace_id.lower(), pipeline, as_json=as_json)
        return
    assert record_id is not None
    found = _found(settings, record_id, pipeline)
    if as_json:
        click.echo(json.dumps(_only(record_id, found).as_json(), default=json_value))
        return
    several = len(settings.placement().domains) > 1
    for number, history in enumerate(found.values()):
        if number:
            click.echo()
        _show(history, with_domains=several)


def _found(settings: Settings, record_id: str, pipeline: str | None) -> dict[str, History]:
    """Return the histories of records of that id, by the names of their pipelines.

    Raises:
        NotFound: no pipeline has the id, or there is no pipeline of that name.
    """
    from etl_assets.errors import NotFound
    from etl_assets.observability.find_history import histories_of

    pipelines = settings.catalog().pipelines
    traced = [each.name for each in pipelines if each.history is not None]
    without = {each.name for each in pipelines if any(not stage.keeps_records for stage in each.stages)}
    if pipeline in without:
        raise NotFound(
            f"records of the pipeline {pipeline} cannot be traced: its source says keep_records: false",
            fix="find the row by its keys (`etl-assets sql`), dead letters by `etl-assets dead-letters list`",
        )
    if pipeline is not None and pipeline not in traced:
        raise NotFound(
            f"there is no pipeline {pipeline!r}",
            fix=f"name one of {', '.join(traced) or 'none: there is none'}",
        )
    return histories_of(settings, record_id, None if pipeline is None else (pipeline,))


def _only(record_id: str, found: dict[str, History]) -> History:
    """Return the one history.

    Raises:
        InputError: there are several.
    """
    from etl_assets.errors import InputError

    if len(found) > 1:
        raise InputError(
            f"{len(found)} pipelines have a record {record_id!r}: {', '.join(found)}",
            fix=f"name one, as in `--pipeline {next(iter(found))}`",
            record_id=record_id,
        )
    return next(iter(found.values()))


def _show(history: History, *, with_domains: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from etl_assets.observability.history import shown_time

    for line in history.head():
        click.echo(line)
    table = Table()
    for name in ("at (UTC)", "stage", "outcome", "offset"):
        table.add_column(name, no_wrap=name != "stage", overflow="fold")
    table.add_column("what", overflow="fold")
    for each in history.happenings:
        offset = "" if each.offset is None else str(each.offset)
        table.add_row(shown_time(each.at), each.stage, each.outcome, offset, Text(_what(each, with_domains)))
    for stage in history.waiting_for:
        table.add_row("", stage, "not yet", "", "")
    Console().print(table)
    for letter in history.dead_letters:
        click.echo(
            f"dead letter {letter.dead_letter_id[:12]} is {letter.state}: {letter.stage}, {letter.reason}"
        )
    for line in history.foot():
        click.echo(line)


def _what(happening: HistoryEntry, with_domain: bool) -> str:
    parts = []
    if happening.file is not None:
        parts.append(f"{'/'.join(happening.file.rsplit('/', 2)[1:])}, line {happening.line}")
    if happening.reason is not None:
        parts.append(f"{happening.reason}: {happening.error}")
    elif happening.error is not None:
        parts.append(happening.error)
    if happening.attempt > 1:
        parts.append(f"attempt {happening.attempt}")
    if with_domain and happening.domain is not None:
        parts.append(f"in {happening.domain}")
    if happening.audited is False:
        parts.append("not audited yet")
    return "; ".join(parts)
