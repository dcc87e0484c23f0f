"""The asset of a stage.

Its partitions, dependencies and policies come from the declaration, its rows from the stage's step.
"""

from typing import Any

import dagster as dg

from etl_assets.assets.attributes import attributes
from etl_assets.pipelines.catalog import Catalog
from etl_assets.pipelines.stage import Stage
from etl_assets.resources.platform import PlatformResource, read_mode
from etl_assets.settings import Settings
from etl_assets.steps.step import StepArguments


def stage_asset(stage: Stage, settings: Settings) -> dg.AssetsDefinition:
    """Build the asset of a stage.

    An asset that reads tables is materialized after its inputs. One that reads a source is materialized by a
    sensor or by hand.
    """

    @dg.asset(
        **attributes(
            stage.table,
            settings,
            group=stage.group,
            daily=stage.table.is_daily,
            automated=bool(stage.inputs),
            owners=stage.owners,
        ),
        deps=_dependencies(stage, settings.catalog()),
    )
    def asset(context: dg.AssetExecutionContext, platform: PlatformResource) -> Any:
        return stage.build_step(
            StepArguments(
                settings=settings,
                context=platform.step_context(context, stage.placement),
                mode=read_mode(context),
            )
        )

    return asset


def _dependencies(stage: Stage, catalog: Catalog) -> list[str]:
    """Return the names of the assets that write the stage's inputs and lookups, each once."""
    writers = (catalog.stage_of(name) for name in (*stage.inputs, *stage.lookups))
    return list(dict.fromkeys(writer.name for writer in writers if writer is not None))
