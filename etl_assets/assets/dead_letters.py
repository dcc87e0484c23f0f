"""The asset dead_letters: what was refused, replayable."""

import dagster as dg

from etl_assets.assets.attributes import attributes
from etl_assets.contracts.tables import DEAD_LETTERS
from etl_assets.placement.policy import Stage
from etl_assets.resources.platform import PlatformResource, read_mode
from etl_assets.settings import Settings
from etl_assets.steps.collect_dead_letters import CollectDeadLetters


def dead_letters_asset(settings: Settings) -> dg.AssetsDefinition:
    """Build the asset for a platform."""

    @dg.asset(**attributes(DEAD_LETTERS, settings, group="observe"), deps=["raw_events", "normalized_orders"])
    def dead_letters(context: dg.AssetExecutionContext, platform: PlatformResource) -> CollectDeadLetters:
        return CollectDeadLetters(
            context=platform.step_context(context, Stage.TRANSFORM), mode=read_mode(context)
        )

    return dead_letters
