"""The pipelines that an installation runs."""

from __future__ import annotations

import functools

from etl_assets.orders.pipeline import ORDERS
from etl_assets.pipelines.catalog import Catalog
from etl_assets.pipelines.system_tables import SYSTEM_TABLES
from etl_assets.steps.dead_letters_pipeline import dead_letters_pipeline


@functools.cache
def installed_catalog() -> Catalog:
    """Return the catalog of the installed pipelines."""
    return Catalog(pipelines=(ORDERS, dead_letters_pipeline([ORDERS])), system_tables=SYSTEM_TABLES)
