"""What every sink of a pipeline declares.

Belongs here: its name and its connection. Does not belong here: addresses (the platform file has them) and
delivery (`steps/deliver.py`).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from etl_assets.pipelines.lag_limit import LagLimit
from etl_assets.pipelines.spec_fields import Name, Spec


class MaxLagSpec(Spec):
    """How far a required sink may be behind its table. Beyond it, the source of the pipeline is not read
    further until the sink has caught up.

    A sink that was just added lacks the whole table until its first delivery.
    """

    rows: Annotated[int | None, Field(ge=1, description="new and changed rows that the sink lacks")] = None
    seconds: Annotated[
        float | None, Field(ge=1, description="age of the oldest commit of the table that the sink lacks")
    ] = None

    @model_validator(mode="after")
    def _limits_something(self) -> MaxLagSpec:
        if self.rows is None and self.seconds is None:
            raise ValueError("it limits nothing; add `rows`, `seconds` or both")
        return self

    @property
    def limit(self) -> LagLimit:
        """The limit."""
        return LagLimit(rows=self.rows, seconds=self.seconds)


class BaseSinkSpec(Spec):
    """A target outside the platform that follows the pipeline's table."""

    connection_type: ClassVar[str]
    """The type of the connections that it takes."""
    kind: ClassVar[str]
    """The kind of its deliveries in Dagster's asset graph, which shows an icon for those that it knows."""
    withdraws: ClassVar[bool] = True
    """Whether a delivery after an undo removes the rows that the undo took out."""

    type: Annotated[str, Field(description="type of the sink")]
    name: Annotated[
        Name | None,
        Field(description="name of the sink in its pipeline; by default the type. It is part of table names"),
    ] = None
    connection: Annotated[
        str,
        Field(
            min_length=1,
            max_length=64,
            examples=["warehouse"],
            description="a name of `connections` in the platform file",
        ),
    ]

    required: Annotated[
        bool,
        Field(
            description="whether the pipeline's source waits for this sink: it is read no further while the"
            " sink is over its lag limit"
        ),
    ] = True
    max_lag: Annotated[
        MaxLagSpec | None,
        Field(
            examples=[{"rows": 1_000_000, "seconds": 3_600}],
            description="the lag limit of a required sink; by default the platform file's"
            " (`pipelines.max_lag_rows`, `pipelines.max_lag_seconds`), which has none by default",
        ),
    ] = None

    @model_validator(mode="after")
    def _limit_is_of_a_required_sink(self) -> Self:
        if self.max_lag is not None and not self.required:
            raise ValueError(
                "the source waits for required sinks alone, so `max_lag` has no effect; leave it out, or"
                " `required: false`"
            )
        return self

    @property
    def sink_name(self) -> str:
        """The name, declared or by the type."""
        return self.name or self.type

    @property
    def target_field(self) -> str:
        """The field that names the target, for messages."""
        raise NotImplementedError

    @property
    def target_name(self) -> str:
        """The target's name that the connection has to allow."""
        raise NotImplementedError
