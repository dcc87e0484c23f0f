"""The asset raw_events: landing files, each event once, in order of acceptance."""

import dagster as dg

from etl_assets.assets.attributes import attributes
from etl_assets.contracts.tables import RAW_EVENTS
from etl_assets.placement.policy import Stage
from etl_assets.resources.platform import PlatformResource, read_mode
from etl_assets.settings import Settings
from etl_assets.steps.data_path import record_limits, source_folders
from etl_assets.steps.ingest import Ingest


def raw_events_asset(settings: Settings) -> dg.AssetsDefinition:
    """Build the asset for a platform. The landing sensor materializes it, not automation."""

    @dg.asset(**attributes(RAW_EVENTS, settings, group="ingest", automated=False))
    def raw_events(context: dg.AssetExecutionContext, platform: PlatformResource) -> Ingest:
        step_context = platform.step_context(context, Stage.INGEST)
        return Ingest(
            context=step_context,
            folders=source_folders(settings, step_context.domain),
            limits=record_limits(settings.landing),
            mode=read_mode(context),
            settle_seconds=settings.landing.settle_seconds,
            max_batch_bytes=settings.landing.max_batch_bytes,
        )

    return raw_events
