"""`etl-assets dead-letters`: list, show and discard rejected records; `replay.py` submits them again.

Belongs here: options, and the display of dead letters. Does not belong here: finding them
(`observability/dead_letters.py`) and discarding them (`steps/discard_dead_letters.py`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from etl_assets.cli.dead_letter_options import (
    JSON,
    Narrowing,
    counted,
    narrowing,
    say,
    settings_and_domain,
    short,
    sink_stages,
)
from etl_assets.cli.replay import replay
from etl_assets.contracts.reasons import DeadLetterState

if TYPE_CHECKING:
    from etl_assets.observability.dead_letters import DeadLetter
    from etl_assets.observability.replay_attempts import ReplayAttempt
    from etl_assets.settings import Settings


@click.group(
    "dead-letters",
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets dead-letters list --reason InvalidPayload\n"
        "  etl-assets dead-letters show 3795bfb3 --raw > fixed.json\n"
        "  etl-assets dead-letters replay 3795bfb3 --record fixed.json\n"
        '  etl-assets dead-letters discard 14d72469 --reason "sent twice by the old exporter"\n'
    ),
)
def dead_letters() -> None:
    """See refused records, submit them again, or give them up."""


dead_letters.add_command(replay)


@dead_letters.command(
    "list",
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets dead-letters list\n"
        "  etl-assets dead-letters list --state all --day 2026-03-01 --limit 0 --json\n"
    ),
)
@click.option(
    "--state",
    type=click.Choice([*(state.value for state in DeadLetterState), "all"]),
    default=DeadLetterState.OPEN.value,
    show_default=True,
    help="Where they are in their life.",
)
@narrowing("Only those ")
@click.option(
    "--limit", type=click.IntRange(0), default=50, show_default=True, help="The newest ones; 0 for all."
)
@JSON
def list_command(state: str, narrowing: Narrowing, limit: int, as_json: bool) -> None:
    """List dead letters, the newest first."""
    from etl_assets.observability.dead_letters import list_letters

    wanted = narrowing.filter(None if state == "all" else DeadLetterState(state))
    letters, total = list_letters(settings_and_domain()[1], wanted, limit=limit or None)
    if as_json:
        click.echo(json.dumps([letter.as_json() for letter in letters]))
    elif not letters:
        click.echo("no such dead letters" if narrowing else f"no {state} dead letters")
    else:
        _show_list(letters, states=state == "all")
    if len(letters) < total:
        click.echo(f"{len(letters):,} of {total:,} are shown; --limit 0 shows all", err=True)


@dead_letters.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets dead-letters show 3795bfb3\n"
        "  etl-assets dead-letters show 3795bfb3 --raw > fixed.json\n"
    )
)
@click.argument("letter_id", metavar="ID")
@click.option("--raw", is_flag=True, help="Print only the record, byte for byte, to correct and replay it.")
@JSON
def show(letter_id: str, raw: bool, as_json: bool) -> None:
    """Show one dead letter with its record and its replays. ID may be cut to a unique beginning."""
    from etl_assets.observability.dead_letters import find_letters
    from etl_assets.observability.replay_attempts import attempts_of

    domain = settings_and_domain()[1]
    (letter,) = find_letters(domain, [letter_id])
    if raw:
        click.echo(letter.record_bytes())
        return
    replays = attempts_of(domain, letter)
    if as_json:
        click.echo(json.dumps(letter.as_json() | {"replays": [each.as_json() for each in replays]}))
    else:
        _show_letter(letter, replays, of_sink=letter.stage in sink_stages(domain.catalog))


@dead_letters.command(
    epilog=(
        "\b\n"
        "Example:\n"
        '  etl-assets dead-letters discard 14d72469 076824cb --reason "test data of the producer"\n'
    )
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", "text", required=True, metavar="TEXT", help="Why; it is kept with the dead letter.")
@JSON
def discard(ids: tuple[str, ...], text: str, as_json: bool) -> None:
    """Give open dead letters up. They stay in the table with state `discarded` and your reason."""
    from etl_assets.observability.dead_letters import find_letters, read_dead_letters
    from etl_assets.observability.submit_replays import check_open

    if not text.strip():
        raise click.BadParameter("say why, in words", param_hint="--reason")
    settings, domain = settings_and_domain()
    letters = find_letters(domain, ids)
    for letter in letters:
        check_open(letter)
    say(f"discarding {counted(letters)}; Spark starts for the commit")
    _discard(settings, letters, text.strip())
    now = read_dead_letters(domain, dead_letter_id=[letter.dead_letter_id for letter in letters])
    if as_json:
        click.echo(json.dumps([letter.as_json() for letter in now]))
    for letter in now:
        if not as_json:
            click.echo(f"{short(letter)} is {letter.state}")
    if any(letter.state != DeadLetterState.DISCARDED for letter in now):
        click.echo("not every letter is discarded: another run closed it in between", err=True)
        sys.exit(1)


def _discard(settings: Settings, letters: Sequence[DeadLetter], reason: str) -> None:
    from etl_assets.contracts.tables.dead_letters import DEAD_LETTERS
    from etl_assets.resources.spark import SparkResource, spark_config
    from etl_assets.steps.discard_dead_letters import DiscardDeadLetters
    from etl_assets.steps.placing import place
    from etl_assets.steps.step import StepContext
    from etl_assets.steps.table_queue import TableQueue

    spark = SparkResource(spark_config=spark_config(settings.spark))
    context = StepContext(
        session=lambda: spark.spark_session,
        domain=place(settings.placement(), DEAD_LETTERS.name),
        lock_wait_seconds=settings.runs.lock_wait_seconds,
        turns=TableQueue(folder=settings.turns_path),
    )
    with context.turn(DEAD_LETTERS.name):
        DiscardDeadLetters(context=context, letters=letters, reason=reason).run()


def _show_list(letters: Sequence[DeadLetter], *, states: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in ("id", "day", "stage", "tries", *(["state"] if states else [])):
        table.add_column(name, no_wrap=True)
    table.add_column("why", overflow="fold")
    for letter in letters:
        state = [letter.state] if states else []
        # `Text` shows the text as it is: rich would read square brackets as markup.
        why = Text(f"{letter.reason}: {letter.error or ''}")
        day = letter.partition_date.isoformat()
        table.add_row(short(letter), day, letter.stage, str(letter.attempts), *state, why)
    Console().print(table)


_REPLAYED = {"ingest": "the whole event", "normalize": "the payload alone"}
"""What a corrected file holds, by the stage that refused the record."""


def _show_letter(letter: DeadLetter, replays: Sequence[ReplayAttempt], *, of_sink: bool) -> None:
    for name, value in letter.as_json().items():
        if name not in ("record", "record_encoding") and value is not None:
            click.echo(f"{name:16}{value}")
    for each in replays:
        click.echo(f"{'attempt':16}{each}")
    click.echo(f"{'record':16}({letter.record_encoding or 'not kept'})")
    if letter.record is not None:
        click.echo(letter.record)
    if letter.is_open and of_sink:
        click.echo(f"\nreplay: etl-assets dead-letters replay {short(letter)}", err=True)
        click.echo("        delivers the row again, as its table has it then", err=True)
    elif letter.is_open:
        what = _REPLAYED.get(letter.stage, "the whole record")
        click.echo(
            f"\nreplay: etl-assets dead-letters replay {short(letter)} [--record FILE]",
            err=True,
        )
        click.echo(f"        FILE holds {what}, corrected, as one JSON object", err=True)
