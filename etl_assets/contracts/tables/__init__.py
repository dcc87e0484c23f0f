"""Contracts of the platform's own system tables, one module per table."""

from __future__ import annotations

from etl_assets.contracts.tables.capture_states import CAPTURE_STATES
from etl_assets.contracts.tables.effects import EFFECTS
from etl_assets.contracts.tables.replays import REPLAYS

__all__ = ["CAPTURE_STATES", "EFFECTS", "REPLAYS"]
