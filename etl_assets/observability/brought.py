"""What pipelines have brought: how far the last table of each path has got, for schedules with `after`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from etl_assets.delta.log.cursor import read_cursors
from etl_assets.ingest.pending_plan import committed_batch
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.pipelines.pipeline import Pipeline
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import Settings

_DIGITS = 15


def tick_after(settings: Settings, names: Sequence[str], last: str | None) -> str | None:
    """Return the tick of a schedule that follows other pipelines: how far each of them has got.

    Args:
        settings: The platform file.
        names: The pipelines.
        last: The last tick; None before the first.

    Returns:
        None if one of them has brought nothing since the last tick, or cannot run now.
    """
    domain = settings.placement().reader()
    found = {each.name: each for each in settings.catalog().pipelines if each.name in names and each.path}
    if len(found) < len(names):
        return None
    now = [brought(found[name], domain) for name in names]
    before = [-1 for _ in names] if last is None else [int(each) - 1 for each in last.split(",")]
    if last is not None and not all(new > old for new, old in zip(now, before, strict=True)):
        return None
    return ",".join(f"{version + 1:0{_DIGITS}}" for version in now)


def brought(pipeline: Pipeline, domain: FailureDomain) -> int:
    """Return a version that rises whenever the last table of a pipeline's path has taken something up.

    Maintenance does not change it. -1 before the first time.
    """
    stage = pipeline.path[-1]
    table = platform_table(stage.name, domain)
    if not stage.table.is_daily and stage.inputs:
        return min(read_cursors(table, name, [None])[None] for name in stage.inputs)
    if not stage.keeps_records:
        return committed_batch(table)
    snapshot = table.snapshot()
    return -1 if snapshot is None else max(snapshot.newest_batch_by_day().values(), default=-1)
