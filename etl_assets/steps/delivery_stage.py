"""The stage that delivers a table to one of its sinks.

Belongs here: what the stages of declared and built-in pipelines have in common. Does not belong here: the
step (`deliver.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.contracts.tables.deliveries import deliveries_of
from etl_assets.contracts.tables.exceptions import exceptions_of
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.pipelines.stage import Stage
from etl_assets.pipelines.undo_policy import UndoPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etl_assets.contracts.columns import TableContract
    from etl_assets.pipelines.sink_specs.base import BaseSinkSpec
    from etl_assets.steps.step import Step, StepArguments


def delivery_stage(
    sink: BaseSinkSpec,
    *,
    pipeline: str,
    group: str,
    table: TableContract,
    tombstones: TableContract | None = None,
    owners: Sequence[str] = (),
) -> Stage:
    """Return the stage of a sink.

    Args:
        sink: The declaration of the sink.
        pipeline: Name of the pipeline, which the position in the target is kept under.
        group: Group of the stage's asset.
        table: The table that the target follows.
        tombstones: The table with the tombstones of its deleted rows; None if it deletes none.
        owners: Owners of the asset.
    """
    deliveries = deliveries_of(table.name, sink.sink_name)
    rejects = exceptions_of(deliveries, read_from=None, name=f"{deliveries.name}_rejects")
    fix = f"restore {table.name}, or reprocess it: the target follows with the next delivery"

    def build(arguments: StepArguments) -> Step:
        from etl_assets.sinks.open_sink import open_sink
        from etl_assets.steps.connection_slots import limited
        from etl_assets.steps.deliver import Deliver

        step = Deliver(
            context=arguments.context,
            mode=arguments.mode,
            table=table,
            tombstones=tombstones,
            deliveries=deliveries,
            rejects=rejects,
            open_sink=lambda: open_sink(sink, arguments.settings, pipeline=pipeline),
        )
        return limited(
            step,
            arguments.settings,
            arguments.context,
            table=deliveries.name,
            connection=sink.connection,
            target=sink.target_name,
        )

    return Stage(
        table=deliveries,
        build_step=build,
        group=group,
        placement=PlacementClass.SINK,
        inputs=(table.name,),
        rejects=rejects,
        undo=UndoPolicy(refusal="its rows are what was delivered", fix=fix),
        undo_of_rejects=UndoPolicy(refusal="its rows are what a target did not accept", fix=fix),
        owners=tuple(owners),
        kinds=(sink.kind, "deltalake"),
        delivers=True,
        is_required=sink.required,
        lag_limit=None if sink.max_lag is None else sink.max_lag.limit,
        withdraws=sink.withdraws,
    )
