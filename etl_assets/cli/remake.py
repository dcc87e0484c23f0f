"""An undo, and the run that rebuilds the removed rows: both succeed, or the tables are restored.

Belongs here: the order of checking, undoing, running and restoring, and the messages on failure. Does not
belong here: what is removed and restored (`undo/plan.py`), and how days are run (`runs.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from etl_assets.cli.dead_letter_options import say

if TYPE_CHECKING:
    from etl_assets.settings import Settings
    from etl_assets.undo.undo import Domains, Undo

_ATTEMPTS = 3
Plan = Callable[["Domains"], "Undo"]


def writing(settings: Settings) -> Domains:
    """Return a function from a table's name to the domain that writes it, which is its stage's."""
    from etl_assets.steps.placing import place

    placement = settings.placement()
    return lambda name: place(placement, name)


def carry_out(
    settings: Settings, plan: Plan, *, of: Collection[str], forwards: bool = False
) -> tuple[Undo, dict[str, int]]:
    """Plan an undo of some tables where they are written, and commit it. Plan again after a conflict.

    The undo queues for these tables and for all tables derived from them, so it and other writers of this
    machine wait for each other. `forwards` is passed to `Undo.carry_out`.

    Returns:
        The plan, and the new version of each table by name.
    """
    from etl_assets.errors import CommitConflict
    from etl_assets.steps.table_queue import TableQueue

    with TableQueue(folder=settings.turns_path).take(*settings.catalog().downstream_of(of)):
        for attempt in range(1, _ATTEMPTS + 1):
            undo = plan(writing(settings))
            try:
                return undo, undo.carry_out(wait_seconds=settings.runs.lock_wait_seconds, forwards=forwards)
            except CommitConflict:
                if attempt == _ATTEMPTS:
                    raise
    raise AssertionError


def check_ready(settings: Settings, assets: Collection[str], days: Collection[dt.date]) -> None:
    """Check, before any row is removed, that a run of some assets can start.

    Each asset must have a failure domain, and Spark must start.

    Raises:
        DomainUnavailable: no domain may run an asset, or none can.
        RuntimeMissing: Java or a jar is missing.
    """
    from etl_assets.resources.platform import input_bytes
    from etl_assets.resources.spark import SparkResource, spark_config

    domains = [writing(settings)(name) for name in assets]
    if domains:
        spark = SparkResource(spark_config=spark_config(settings.spark), start=settings.spark.start.value)
        spark.session_for(input_bytes(settings, domains[0], sorted(days)))


def undo_and_remake(
    settings: Settings, plan: Plan, *, of: Collection[str], assets: Sequence[str], days: Collection[dt.date]
) -> dict[str, int]:
    """Carry out an undo, and run the assets whose rows it removes. If the run fails, restore the tables.

    If the process is killed in between, the same command or `etl-assets run` rebuilds the missing rows.

    Args:
        settings: The platform file.
        plan: Plans the undo.
        of: The tables it begins with.
        assets: Assets to run, in the order of the data path.
        days: Days to run, if the undo has none of its own.

    Returns:
        The version of each table after the undo.

    Raises:
        EtlAssetsError: the undo or the run failed; the error's `fix` describes the state of the tables.
    """
    from etl_assets.errors import EtlAssetsError

    try:
        check_ready(settings, assets, days)
        undo, versions = carry_out(settings, plan, of=of)
    except EtlAssetsError as error:
        error.fix += "; the same command completes what it may have begun"
        raise
    days = [day for day in undo.days or days if day >= settings.start_date]
    if not assets or not days or not undo.tables:
        return versions
    say(f"taken out of {', '.join(each.name for each in undo.tables)}; made again now")
    try:
        _run(settings, assets, days)
    except BaseException as error:  # An interrupted run must not leave tables without their rows either.
        state = _put_back(settings, undo, error)
        say(state)
        if isinstance(error, EtlAssetsError):
            error.fix += f"; {state}"
        raise
    return versions


def finish(settings: Settings, assets: Sequence[str]) -> None:
    """Run assets for the days on which they are behind, as after an undo that was killed before its run."""
    from etl_assets.observability.days_behind import days_behind

    behind = days_behind(settings.placement().reader(), settings.start_date)
    days = {day for name in assets for day in behind.get(name, ())}
    if days:
        say(
            f"{len(days):,} days of {', '.join(name for name in assets if name in behind)} are still to be"
            " made"
        )
        _run(settings, assets, days)


def _run(settings: Settings, assets: Sequence[str], days: Collection[dt.date]) -> None:
    from etl_assets.instance import open_instance
    from etl_assets.runs import materialize_days
    from etl_assets.steps.step import ReadMode

    with open_instance(settings) as instance:
        # The undo has set the cursors back, so an incremental run reads everything that is missing.
        materialize_days(settings, instance, days, mode=ReadMode.INCREMENTAL, assets=assets)


def _put_back(settings: Settings, undo: Undo, cause: BaseException) -> str:
    """Restore the tables of an undo after its run failed; return their state, in a sentence."""
    from etl_assets.sensors.alerts import AlertKind, write_alert
    from etl_assets.undo.put_back import plan_put_back

    before: Mapping[str, int] = {each.name: each.replacement.base_version for each in undo.tables}
    days = {each.name: each.days for each in undo.tables}
    names = ", ".join(before)
    try:
        back, _ = carry_out(
            settings, partial(plan_put_back, before=before, days=days), of=list(before), forwards=True
        )
    except Exception as error:  # noqa: BLE001 - the operator has to know what is missing, whatever failed
        state = (
            f"rows are missing from {names}: they were taken out, and neither made again nor put back"
            f" ({type(error).__name__}: {error}); the same command, or `etl-assets run`, makes them again"
        )
        write_alert(
            settings.home, AlertKind.UNDO_UNFINISHED, {"tables": names, "error": f"{state}; cause: {cause}"}
        )
        return state
    # Dead letters discarded meanwhile stay discarded. The next run handles the others of their days.
    unmade = ", ".join(each.name for each in back.tables if each.replacement.undo["kind"] == "reprocess")
    return f"{names} have again the rows that they had before the command; it can be repeated" + (
        f"; {unmade} changed meanwhile and is made again by the next run" if unmade else ""
    )
