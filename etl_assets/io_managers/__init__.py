"""IO managers: they store assets' results in tables."""

from etl_assets.io_managers.delta_upsert import DeltaUpsertIOManager

__all__ = ["DeltaUpsertIOManager"]
