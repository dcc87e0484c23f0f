"""Shared code of the commands on dead letters: options, selection and wording."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import reduce, wraps
from typing import TYPE_CHECKING, Any

import click

from etl_assets.contracts.reasons import DeadLetterReason, DeadLetterState

if TYPE_CHECKING:
    from etl_assets.observability.dead_letters import DeadLetter, DeadLetterFilter
    from etl_assets.pipelines.catalog import Catalog
    from etl_assets.pipelines.stage import Stage
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


class SinkName(click.ParamType):
    """Names of the tables of deliveries to a sink, by one of them or by the sink's name."""

    name = "sink"

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Accept the name of a sink, in whichever pipelines have it, or of a table of deliveries."""
        from etl_assets.settings import load_settings

        if isinstance(value, tuple):
            return value
        sinks = [each for each in load_settings().catalog().stages if each.delivers]
        found = tuple(each.name for each in sinks if value in (each.name, _sink_of(each)))
        if not found:
            known = ", ".join(sorted({_sink_of(each) for each in sinks})) or "there is none"
            self.fail(f"{value!r} is no sink: {known}", param, ctx)
        return found


def _sink_of(stage: Stage) -> str:
    """Return the name of the sink that a stage delivers to."""
    from etl_assets.contracts.tables.deliveries import deliveries_name

    return stage.name.removeprefix(deliveries_name(stage.inputs[0], ""))


class Time(click.DateTime):
    """A day or a time, in UTC."""

    def __init__(self) -> None:
        super().__init__(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dt.datetime:
        """Accept a day or a time."""
        return super().convert(value, param, ctx).replace(tzinfo=dt.UTC)


STAGE = StageName()
DAY = click.DateTime(["%Y-%m-%d"])
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")


def settings_and_domain() -> tuple[Settings, FailureDomain]:
    """Return the platform file, and the domain to read tables in."""
    from etl_assets.settings import load_installation

    settings = load_installation()
    return settings, settings.placement().reader()


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """What the options of `narrowing` say of the dead letters that are meant."""

    reason: str | None
    stage: str | None
    sink: tuple[str, ...] | None
    day: dt.datetime | None
    since: dt.datetime | None
    until: dt.datetime | None

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return any(getattr(self, field.name) is not None for field in fields(self))

    def filter(self, state: DeadLetterState | None) -> DeadLetterFilter:
        """Return the filter on dead letters of a state; None for any."""
        from etl_assets.observability.dead_letters import DeadLetterFilter

        if self.stage is not None and self.sink is not None:
            raise click.UsageError("--stage and --sink name one thing: take one of them")
        return DeadLetterFilter(
            state=state,
            stages=self.sink if self.stage is None else (self.stage,),
            reason=None if self.reason is None else DeadLetterReason(self.reason),
            day=None if self.day is None else self.day.date(),
            since=self.since,
            until=self.until,
        )


def narrowing(prefix: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a command the options which name dead letters, as one `narrowing`.

    Args:
        prefix: What each help text begins with.
    """
    options = (
        click.option("--reason", type=REASON, metavar="REASON", help=f"{prefix}refused for this reason."),
        click.option("--stage", type=STAGE, help=f"{prefix}refused by this stage."),
        click.option("--sink", type=SinkName(), help=f"{prefix}refused by the target of this sink."),
        click.option("--day", type=DAY, metavar="YYYY-MM-DD", help=f"{prefix}arrived on this day."),
        click.option(
            "--since", type=Time(), metavar="TIME", help=f"{prefix}refused from this time (UTC) on."
        ),
        click.option("--until", type=Time(), metavar="TIME", help=f"{prefix}refused before this time (UTC)."),
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def narrowed(**arguments: Any) -> Any:
            values = {field.name: arguments.pop(field.name) for field in fields(Narrowing)}
            return command(**arguments, narrowing=Narrowing(**values))

        return reduce(lambda made, option: option(made), reversed(options), narrowed)

    return decorate


def sink_stages(catalog: Catalog) -> frozenset[str]:
    """Return the names of the stages that deliver to sinks."""
    return frozenset(stage.name for stage in catalog.stages if stage.delivers)


def short(letter: DeadLetter) -> str:
    """Return the shortened id that is shown to people."""
    return letter.dead_letter_id[:SHOWN_OF_ID]


def counted(letters: Sequence[object]) -> str:
    """Return the number of dead letters in words."""
    return f"{len(letters):,} dead {'letter' if len(letters) == 1 else 'letters'}"


def say(text: str) -> None:
    """Print a line of progress."""
    click.echo(f"==> {text}", err=True)
