"""The asset normalized_orders: typed, enriched, in order."""

import dagster as dg

from etl_assets.assets.attributes import attributes
from etl_assets.contracts.tables import NORMALIZED_ORDERS
from etl_assets.placement.policy import Stage
from etl_assets.resources.platform import PlatformResource, read_mode
from etl_assets.settings import Settings
from etl_assets.steps.normalize import Normalize


def normalized_orders_asset(settings: Settings) -> dg.AssetsDefinition:
    """Build the asset for a platform."""

    @dg.asset(**attributes(NORMALIZED_ORDERS, settings, group="transform"), deps=["raw_events", "customers"])
    def normalized_orders(context: dg.AssetExecutionContext, platform: PlatformResource) -> Normalize:
        return Normalize(context=platform.step_context(context, Stage.TRANSFORM), mode=read_mode(context))

    return normalized_orders
