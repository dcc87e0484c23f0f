"""The contracts of the tables that the platform keeps for itself, one module a table."""

from __future__ import annotations

from etl_assets.contracts.tables.effects import EFFECTS
from etl_assets.contracts.tables.replays import REPLAYS

__all__ = ["EFFECTS", "REPLAYS"]
