"""What every sink of a pipeline declares.

Belongs here: its name and its connection. Does not belong here: addresses (the platform file has them) and
delivery (`steps/deliver.py`).
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from etl_assets.pipelines.spec_fields import Name, Spec


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
