"""The definitions that Dagster loads: the platform of this installation."""

from __future__ import annotations

from etl_assets.build import build_definitions
from etl_assets.settings import load_settings

defs = build_definitions(load_settings())
