"""`etl-assets trace --trace-id`: the records of one W3C trace, in all pipelines."""

from __future__ import annotations

import json
from itertools import chain, islice
from typing import TYPE_CHECKING

import click

from etl_assets.cli.dead_letter_options import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etl_assets.observability.traced_records import TracedRecord
    from etl_assets.settings import Settings


def list_traced(settings: Settings, trace_id: str, pipeline: str | None, *, as_json: bool) -> None:
    """Print the records of a trace, the oldest first.

    Raises:
        InputError: the text is no trace id.
        NotFound: no table has a record of the trace, or there is no pipeline of that name.
    """
    from etl_assets.contracts.trace_context import is_trace_id
    from etl_assets.errors import InputError, NotFound
    from etl_assets.observability.traced_records import MOST_RECORDS

    if not is_trace_id(trace_id):
        raise InputError(
            f"{trace_id[:80]!r} is no trace id",
            fix="write its 32 hexadecimal digits: the second part of a `traceparent`",
        )
    finders = {each.name: each.traced for each in settings.catalog().pipelines if each.traced is not None}
    if pipeline is not None and pipeline not in finders:
        raise NotFound(
            f"there is no pipeline {pipeline!r} with a trace context",
            fix=f"name one of {', '.join(finders) or 'none: declare `table.trace_context`'}",
        )
    chosen = (find for name, find in finders.items() if pipeline in (None, name))
    some = chain.from_iterable(find(settings, trace_id) for find in chosen)
    records = sorted(islice(some, MOST_RECORDS), key=lambda each: each.at)
    if not records:
        raise NotFound(
            f"no record of the trace {trace_id} has been found in {', '.join(finders) or 'any pipeline'}",
            fix="check the id, and that the pipeline has read the record and declares `table.trace_context`",
            trace_id=trace_id,
        )
    if as_json:
        click.echo(json.dumps({"trace_id": trace_id, "records": [each.as_json() for each in records]}))
    else:
        _show(records)
    if len(records) == MOST_RECORDS:
        say(f"there may be more: at most {MOST_RECORDS} are listed")


def _show(records: Sequence[TracedRecord]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from etl_assets.observability.history import shown_time

    table = Table()
    for name in ("at (UTC)", "pipeline", "id", "from"):
        table.add_column(name, no_wrap=name == "at (UTC)", overflow="fold")
    for each in records:
        table.add_row(shown_time(each.at), each.pipeline, Text(each.record_id), Text(each.origin))
    Console().print(table)
    click.echo("`etl-assets trace ID` shows what became of one")
