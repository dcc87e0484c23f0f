"""The catalog of an installation as tests use it, and domains that have its tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from etl_assets.installed import built_in_catalog
from etl_assets.placement.domains import FailureDomain

CATALOG = built_in_catalog()
ALL_TABLES = CATALOG.tables


def local_domain(root: Path, **fields: Any) -> FailureDomain:
    """The one failure domain of an installation, with the tables of the catalog."""
    return replace(FailureDomain(name="local", root=root, catalog=CATALOG), **fields)
