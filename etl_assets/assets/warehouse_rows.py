"""The asset warehouse_rows: one row an event, keyed."""

import dagster as dg

from etl_assets.assets.attributes import attributes
from etl_assets.contracts.tables import WAREHOUSE_ROWS
from etl_assets.placement.policy import Stage
from etl_assets.resources.platform import PlatformResource, read_mode
from etl_assets.settings import Settings
from etl_assets.steps.load_warehouse import LoadWarehouse


def warehouse_rows_asset(settings: Settings) -> dg.AssetsDefinition:
    """Build the asset for a platform."""

    @dg.asset(**attributes(WAREHOUSE_ROWS, settings, group="sink"), deps=["normalized_orders"])
    def warehouse_rows(context: dg.AssetExecutionContext, platform: PlatformResource) -> LoadWarehouse:
        return LoadWarehouse(context=platform.step_context(context, Stage.SINK), mode=read_mode(context))

    return warehouse_rows
