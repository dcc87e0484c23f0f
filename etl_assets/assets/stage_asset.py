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
    sensor or by hand. All assets of a pipeline with a schedule are materialized by the schedule or by hand.

    No asset depends on a delivery: a target that is down would keep it from running.
    """
    writers = _writers(stage, settings.catalog())

    @dg.asset(
        **attributes(
            stage.table,
            settings,
            group=stage.group,
            daily=stage.table.is_daily,
            automated=bool(stage.inputs) and not _is_scheduled(stage, settings.catalog()),
            owners=stage.owners,
            kinds=stage.kinds,
            deliveries=tuple(each.name for each in writers if each.delivers),
        ),
        deps=[each.name for each in writers if not each.delivers],
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


def _is_scheduled(stage: Stage, catalog: Catalog) -> bool:
    pipeline = catalog.pipeline_of(stage.name)
    return pipeline is not None and pipeline.schedule is not None


def _writers(stage: Stage, catalog: Catalog) -> tuple[Stage, ...]:
    """Return the stages that write what the stage reads, each once."""
    found = (catalog.stage_of(name) for name in (*stage.inputs, *stage.lookups, *stage.follows))
    return tuple({each.name: each for each in found if each is not None}.values())
