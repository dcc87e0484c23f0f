"""The pipeline of a name in a catalog."""

from __future__ import annotations

from etl_assets.pipelines.catalog import Catalog
from etl_assets.pipelines.pipeline import Pipeline


def pipeline_of(catalog: Catalog, name: str) -> Pipeline | None:
    """Return a pipeline; None for one whose declaration is broken, as it has no tables then."""
    return next((each for each in catalog.pipelines if each.name == name), None)
