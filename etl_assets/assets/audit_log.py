"""The asset audit_log: what became of every record."""

import dagster as dg

from etl_assets.assets.attributes import attributes
from etl_assets.contracts.tables import AUDIT_LOG
from etl_assets.placement.policy import Stage
from etl_assets.resources.platform import PlatformResource, read_mode
from etl_assets.settings import Settings
from etl_assets.steps.audit import Audit


def audit_log_asset(settings: Settings) -> dg.AssetsDefinition:
    """Build the asset for a platform."""

    @dg.asset(
        **attributes(AUDIT_LOG, settings, group="observe"),
        deps=["raw_events", "normalized_orders", "warehouse_rows"],
    )
    def audit_log(context: dg.AssetExecutionContext, platform: PlatformResource) -> Audit:
        return Audit(context=platform.step_context(context, Stage.TRANSFORM), mode=read_mode(context))

    return audit_log
