"""`etl-assets trace`: the full history of one event in one answer."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from etl_assets.observability.event_history import EventHistory
    from etl_assets.observability.history_entries import HistoryEntry


@click.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets trace 01a1dcac-717f-7e0b-8db9-aeca2d71850d\n"
        "  etl-assets trace 01a1dcac-717f-7e0b-8db9-aeca2d71850d --json | jq .happenings\n"
    )
)
@click.argument("event_id")
@click.option("--json", "as_json", is_flag=True, help="Print one object, for machines.")
def trace(event_id: str, as_json: bool) -> None:
    """Show where an event came from, and what every stage made of it and when.

    File, line and offset, duplicates and conflicts seen of it, its dead letters and replays, and the present
    state of its order. Read from the stages' own tables, so it is right also while audit_log lags behind.
    """
    from etl_assets.observability.event_history import tell
    from etl_assets.settings import load_installation

    settings = load_installation()
    story = tell(settings.placement().reader(), settings.landing_path, event_id)
    if as_json:
        click.echo(json.dumps(as_object(story), default=_json_value))
    else:
        _show(story)


def as_object(story: EventHistory) -> dict[str, Any]:
    """Return the history as one object, with `file`, `line` and `offset` of the accepted event at the top."""
    return {
        "event_id": story.event_id,
        "file": story.file,
        "line": story.line,
        "offset": None if story.event is None else story.event["offset"],
        "event": story.event,
        "happenings": [each.as_json() for each in story.happenings],
        "repeats": [each.as_json() for each in story.repeats],
        "waiting_for": list(story.waiting_for),
        "dead_letters": [letter.as_json() for letter in story.dead_letters],
        "order": story.order,
    }


def _json_value(value: Any) -> str:
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def _show(story: EventHistory) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    _show_event(story)
    table = Table()
    for name in ("at (UTC)", "stage", "outcome", "offset"):
        table.add_column(name, no_wrap=True)
    table.add_column("what", overflow="fold")
    for each in story.happenings:
        offset = "" if each.offset is None else str(each.offset)
        table.add_row(_time(each.at), each.stage, each.outcome, offset, Text(_what(each)))
    for stage in story.waiting_for:
        table.add_row("", stage, "not yet", "", "")
    Console().print(table)
    for letter in story.dead_letters:
        click.echo(
            f"dead letter {letter.dead_letter_id[:12]} is {letter.state}: {letter.stage}, {letter.reason}"
        )
    _show_order(story)


def _show_event(story: EventHistory) -> None:
    click.echo(f"event     {story.event_id}")
    if story.event is None:
        click.echo("          was never accepted")
        return
    event = story.event
    click.echo(
        f"          {event['event_type']} version {event['schema_version']} of {event['tenant_id']}"
        f" about {event['aggregate_id']}, occurred at {_time(event['occurred_at'])}"
    )
    where = event["source_position"] if story.file is None else f"{story.file}, line {story.line}"
    click.echo(f"from      {where}")
    click.echo(f"offset    {event['offset']} in raw_events, day {event['partition_date']}")


def _show_order(story: EventHistory) -> None:
    if story.order is None:
        return
    order = story.order
    reached = [
        f"{name} {_time(order[f'{name}_at'])}"
        for name in ("created", "paid", "shipped", "delivered", "canceled")
        if order[f"{name}_at"] is not None
    ]
    money = f"total {order['order_total']}, paid {order['paid_total']} {order['currency'] or ''}".rstrip()
    click.echo(f"order     {order['order_id']} is {order['order_status']}: {money}; {', '.join(reached)}")


def _what(happening: HistoryEntry) -> str:
    parts = []
    if happening.file is not None:
        parts.append(f"{'/'.join(happening.file.rsplit('/', 2)[1:])}, line {happening.line}")
    if happening.reason is not None:
        parts.append(f"{happening.reason}: {happening.error}")
    elif happening.error is not None:
        parts.append(happening.error)
    if happening.attempt > 1:
        parts.append(f"attempt {happening.attempt}")
    if happening.audited is False:
        parts.append("not in audit_log yet")
    return "; ".join(parts)


def _time(at: dt.datetime | None) -> str:
    return "not known" if at is None else at.strftime("%Y-%m-%d %H:%M:%S")
