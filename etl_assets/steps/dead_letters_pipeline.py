"""The pipeline that collects the rejected records of all other pipelines as dead letters."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import DeadLetterState
from etl_assets.contracts.tables.dead_letters import DEAD_LETTERS, dead_letters_table
from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.pipelines.stage import Stage
from etl_assets.pipelines.undo_policy import KeptValues, UndoPolicy

if TYPE_CHECKING:
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.steps.step import Step, StepArguments


def dead_letters_pipeline(pipelines: Sequence[Pipeline]) -> Pipeline:
    """Return the pipeline of the table dead_letters, over all tables of rejected rows of some pipelines."""
    stages = [stage for pipeline in pipelines for stage in pipeline.stages]
    rejects = [stage.rejects for stage in stages if stage.rejects is not None]
    names = tuple(contract.name for contract in rejects)
    # What a stage accepts closes a dead letter, so the table follows these tables as well. A day without
    # rejects has no dead letters, and leaves no cursor.
    accepted = tuple(
        stage.name
        for stage in stages
        if stage.rejects is not None and ((stage.source and stage.keeps_records) or stage.takes_replays)
    )
    return Pipeline(
        name="dead_letters",
        derived=(
            Stage(
                table=dead_letters_table(rejects),
                build_step=_collect,
                group="observe",
                inputs=(*names, *accepted),
                driving_inputs=names,
                undo=UndoPolicy(keep_rows=_kept),
            ),
        ),
    )


def _kept(domain: FailureDomain, days: Sequence[dt.date]) -> Sequence[KeptValues]:
    """Return the rows that an undo leaves.

    Dead letters that an operator discarded stay discarded. Those of a pipeline whose file is gone, or broken,
    could not be made again.
    """
    from etl_assets.observability.rows import find_rows
    from etl_assets.steps.step import platform_table

    table = platform_table(DEAD_LETTERS.name, domain)
    rows = find_rows(table, columns=("stage",), where={"partition_date": days})
    known = {stage.name_in_rejects for stage in domain.catalog.stages}
    return [
        KeptValues(column="state", values=frozenset({DeadLetterState.DISCARDED.value})),
        KeptValues(column="stage", values=frozenset({row["stage"] for row in rows} - known)),
    ]


def _collect(arguments: StepArguments) -> Step:
    from etl_assets.steps.collect_dead_letters import CollectDeadLetters

    return CollectDeadLetters(context=arguments.context, mode=arguments.mode)
