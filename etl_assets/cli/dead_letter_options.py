"""Shared code of the commands on dead letters: options, selection and wording."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from etl_assets.contracts.reasons import DeadLetterReason, DeadLetterState

if TYPE_CHECKING:
    from etl_assets.observability.dead_letters import DeadLetter, DeadLetterFilter
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import Settings

SHOWN_OF_ID = 12
REASON = click.Choice([reason.value for reason in DeadLetterReason], case_sensitive=False)


class StageName(click.ParamType):
    """Name of a stage, as dead letters have it."""

    name = "stage"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Accept the name of a stage that rejects records."""
        from etl_assets.settings import load_settings

        names = [
            each.name_in_rejects for each in load_settings().catalog().stages if each.rejects is not None
        ]
        if value not in names:
            self.fail(f"{value!r} is no stage that refuses records: there are {', '.join(names)}", param, ctx)
        return value


STAGE = StageName()
DAY = click.DateTime(["%Y-%m-%d"])
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")


def settings_and_domain() -> tuple[Settings, FailureDomain]:
    """Return the platform file, and the domain to read tables in."""
    from etl_assets.settings import load_installation

    settings = load_installation()
    return settings, settings.placement().reader()


def letter_filter(
    state: DeadLetterState | None, stage: str | None, reason: str | None, day: dt.datetime | None
) -> DeadLetterFilter:
    """Convert the options to a filter."""
    from etl_assets.observability.dead_letters import DeadLetterFilter

    return DeadLetterFilter(
        state=state,
        stage=stage,
        reason=None if reason is None else DeadLetterReason(reason),
        day=None if day is None else day.date(),
    )


def short(letter: DeadLetter) -> str:
    """Return the shortened id that is shown to people."""
    return letter.dead_letter_id[:SHOWN_OF_ID]


def counted(letters: Sequence[object]) -> str:
    """Return the number of dead letters in words."""
    return f"{len(letters):,} dead {'letter' if len(letters) == 1 else 'letters'}"


def say(text: str) -> None:
    """Print a line of progress."""
    click.echo(f"==> {text}", err=True)
