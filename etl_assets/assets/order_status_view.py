"""The asset order_status_view: the latest state of each order; no days."""

import dagster as dg

from etl_assets.assets.attributes import attributes
from etl_assets.contracts.tables import ORDER_STATUS_VIEW
from etl_assets.placement.policy import Stage
from etl_assets.resources.platform import PlatformResource, read_mode
from etl_assets.settings import Settings
from etl_assets.steps.fold_status import FoldStatus


def order_status_view_asset(settings: Settings) -> dg.AssetsDefinition:
    """Build the asset for a platform."""

    @dg.asset(**attributes(ORDER_STATUS_VIEW, settings, group="sink", daily=False), deps=["warehouse_rows"])
    def order_status_view(context: dg.AssetExecutionContext, platform: PlatformResource) -> FoldStatus:
        return FoldStatus(context=platform.step_context(context, Stage.SINK), mode=read_mode(context))

    return order_status_view
