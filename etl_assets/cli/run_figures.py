"""Figures of runs, summed over the materialized partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etl_assets.pipelines.catalog import Catalog


def run_figures(result: Any, catalog: Catalog) -> Counter[str]:
    """Return the figures of a run by `table.figure`."""
    events = result.get_asset_materialization_events()
    return figures_of((event.step_materialization_data.materialization for event in events), catalog)


def figures_of(materializations: Iterable[Any], catalog: Catalog) -> Counter[str]:
    """Return the figures of materializations by `table.figure`."""
    figures: Counter[str] = Counter()
    for materialization in materializations:
        table = materialization.asset_key.to_user_string()
        for name in catalog.figures:
            value = materialization.metadata.get(name)
            if value is not None:
                figures[f"{table}.{name}"] += value.value
    return figures
