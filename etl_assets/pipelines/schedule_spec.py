"""The block `schedule` of a declaration.

Belongs here: its fields and the rules that the block can check by itself. Does not belong here: whether the
pipelines that it names exist (`schedule_checks.py`), and which times are ticks (`schedule.py`).
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from functools import cache
from typing import Annotated, Any
from zoneinfo import available_timezones

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from etl_assets.pipelines.schedule import MAX_CATCH_UP_RUNS, CatchUp, Schedule
from etl_assets.pipelines.spec_fields import Name, Spec

_CRON_FIELDS = ("minute", "hour", "day of month", "month", "day of week")
_CRON_TEXT = re.compile(r"[0-9A-Za-z*/,-]+")
_CRON_EXAMPLE = "such as `0 6 * * 1-5`: minute, hour, day of month, month, day of week"


def _cron(value: str) -> str:
    from cronsim import CronSim, CronSimError

    parts = value.split()
    if len(parts) != len(_CRON_FIELDS):
        raise ValueError(f"it has {len(parts)} fields instead of five; {_CRON_EXAMPLE}")
    for name, part in zip(_CRON_FIELDS, parts, strict=True):
        if not _CRON_TEXT.fullmatch(part) or "L" in part.upper().replace("JUL", ""):
            raise ValueError(
                f"{name} `{part}` is not of numbers, names, `*`, `,`, `-` and `/`; {_CRON_EXAMPLE}"
            )
    try:
        next(CronSim(" ".join(parts), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)))
    except CronSimError as error:
        what = str(error).removeprefix("Bad ").replace("-", " ")
        raise ValueError(f"its {what} is never met or out of range; {_CRON_EXAMPLE}") from error
    except StopIteration as error:
        raise ValueError(f"no day ever meets it; {_CRON_EXAMPLE}") from error
    return " ".join(parts)


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _time_zone(value: str) -> str:
    if value not in _zones():
        by_lower = {zone.lower(): zone for zone in _zones()}
        close = difflib.get_close_matches(value.lower(), by_lower, n=1, cutoff=0.7)
        near = f"did you mean `{by_lower[close[0]]}`? " if close else ""
        raise ValueError(f"no time zone has this name; {near}use a name such as `Europe/Berlin` or `UTC`")
    return value


def _names(value: Any) -> Any:
    """Accept one name in place of a list."""
    return (value,) if isinstance(value, str) else value


class ScheduleSpec(Spec):
    """When the pipeline runs: by `cron`, `every_seconds` or `after`, one of the three.

    With a schedule nothing else starts it but a person or a program: neither new data nor the worker.
    """

    cron: Annotated[
        str | None,
        AfterValidator(_cron),
        Field(
            max_length=200,
            examples=["0 6 * * 1-5"],
            description="five fields: minute, hour, day of month, month, day of week",
        ),
    ] = None
    time_zone: Annotated[
        str,
        AfterValidator(_time_zone),
        Field(examples=["Europe/Berlin"], description="zone of `cron`, a name of the IANA database"),
    ] = "UTC"
    every_seconds: Annotated[
        int | None,
        Field(
            ge=1,
            le=31 * 86_400,
            examples=[900],
            description=(
                "interval; its ticks are the multiples since 1970-01-01 UTC. Dagster's daemon looks once a"
                " minute, so shorter intervals are kept by the worker only"
            ),
        ),
    ] = None
    after: Annotated[
        tuple[Name, ...],
        BeforeValidator(_names),
        Field(
            max_length=100,
            examples=["suppliers"],
            description=(
                "pipelines, one name or a list: it runs once each of them has completed a run that brought"
                " something since its own last run"
            ),
        ),
    ] = ()
    catch_up: Annotated[
        CatchUp,
        Field(
            description=(
                "which ticks get a run that were missed while neither the worker nor Dagster ran: the newest"
                " one, all of them one after another, or none"
            )
        ),
    ] = CatchUp.LATEST
    max_catch_up_runs: Annotated[
        int,
        Field(
            ge=1,
            le=MAX_CATCH_UP_RUNS,
            description="`catch_up: all`: most missed ticks that get a run",
        ),
    ] = 10

    @model_validator(mode="after")
    def _one_kind(self) -> ScheduleSpec:
        given = [name for name in ("cron", "every_seconds", "after") if getattr(self, name)]
        if not given:
            raise ValueError("it says no time; add one of `cron`, `every_seconds` and `after`")
        if len(given) > 1:
            raise ValueError(f"it has {' and '.join(f'`{name}`' for name in given)}; keep one of them")
        if self.time_zone != "UTC" and self.cron is None:
            raise ValueError(f"time_zone is for `cron`; take it out of a schedule by `{given[0]}`")
        if self.after and (self.catch_up is not CatchUp.LATEST):
            raise ValueError(
                "catch_up is for `cron` and `every_seconds`; take it out of a schedule by `after`"
            )
        if len(set(self.after)) < len(self.after):
            raise ValueError("a pipeline stands twice in after; name each once")
        return self

    @property
    def value(self) -> Schedule:
        """The schedule."""
        return Schedule(**self.model_dump())
