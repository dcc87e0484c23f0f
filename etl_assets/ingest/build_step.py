"""The builder of the step that ingests a source.

A step's module is imported when the step is built: checking for work needs no numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etl_assets.pipelines.declared import DeclaredTables
    from etl_assets.pipelines.stage import BuildStep
    from etl_assets.steps.step import Step, StepArguments


def ingest_files(table: str, direct: DeclaredTables | None = None) -> BuildStep:
    """Return the builder of the step that ingests the files of a stage's source.

    Args:
        table: The stage's table.
        direct: The tables of a pipeline that keeps no records; None: the table is one of records.
    """

    def build(arguments: StepArguments) -> Step:
        from etl_assets.ingest.range_step import IngestRanges
        from etl_assets.ingest.step import Ingest

        stage = arguments.context.domain.catalog.stage(table)
        assert stage.source is not None  # it is built for stages that have one
        source = stage.source(arguments.settings, arguments.context.domain)
        step: Callable[..., Ingest] = Ingest if source.ranges is None else IngestRanges
        if direct is not None:
            from etl_assets.ingest.direct_step import DirectLoad

            step = partial(DirectLoad, tables=direct)
        return step(
            context=arguments.context,
            stage=stage,
            source=source,
            mode=arguments.mode,
            max_batch_bytes=arguments.max_batch_bytes or source.max_batch_bytes,
            most_batches=arguments.max_batches,
        )

    return build
