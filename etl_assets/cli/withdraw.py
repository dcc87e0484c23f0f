"""Sinks of tables that an undo changes: what they lose, and the deliveries that take it from them.

Belongs here: which sinks follow, and what is said of them. Does not belong here: the delivery
(`steps/deliver.py`), and the undo (`remake.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from etl_assets.cli.dead_letter_options import say

if TYPE_CHECKING:
    from etl_assets.pipelines.catalog import Catalog
    from etl_assets.settings import Settings


def said_of_sinks(catalog: Catalog, undone: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each sink of tables that an undo changes."""
    for stage in catalog.sinks_of(undone):
        yield f"{stage.name}: " + (
            "its target gets the rows that are left, and loses those that go"
            if stage.withdraws
            else "its target gets the rows that are left; those that go stay there, because it removes none"
        )


def sinks_as_json(catalog: Catalog, undone: Collection[str]) -> list[dict[str, Any]]:
    """Return the sinks of tables that an undo changes, for machines."""
    return [{"name": each.name, "withdraws": each.withdraws} for each in catalog.sinks_of(undone)]


def withdraw(settings: Settings, undone: Collection[str]) -> None:
    """Deliver tables that an undo changed, and say what a target keeps all the same.

    A sink that has everything is left alone, so this also completes what was killed before.

    Raises:
        RunFailed: sinks were not delivered to, and are named. The undo stays, and all other sinks are done.
    """
    from etl_assets.errors import RunFailed
    from etl_assets.instance import open_instance
    from etl_assets.observability.days_behind import days_behind
    from etl_assets.runs import materialize_days
    from etl_assets.steps.step import ReadMode

    if not (sinks := settings.catalog().sinks_of(undone)):
        return
    behind = days_behind(settings.placement().reader(), settings.start_date)
    names = [each.name for each in sinks if each.name in behind]
    if not names:
        return
    say(f"delivered now: {', '.join(names)}")
    days = {day for name in names for day in behind[name]}
    try:
        with open_instance(settings) as instance:
            results = materialize_days(settings, instance, days, mode=ReadMode.INCREMENTAL, assets=names)
    except RunFailed as error:
        _say_notes(error.materializations)
        error.fix += "; the same command does so too, and leaves the tables as they are now"
        raise
    for result in results:
        _say_notes(
            event.step_materialization_data.materialization
            for event in result.get_asset_materialization_events()
        )


def _say_notes(materializations: Iterable[Any]) -> None:
    for each in materializations:
        if (notes := each.metadata.get("notes")) is not None:
            for line in notes.value.splitlines():
                say(f"{each.asset_key.to_user_string()}: {line.removeprefix('- ')}")
