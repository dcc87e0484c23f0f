"""A sink of type kafka: a topic."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from etl_assets.pipelines.sink_specs.base import BaseSinkSpec
from etl_assets.pipelines.spec_fields import Spec


class CreateTopicSpec(Spec):
    """How a missing topic is created: compacted, so that it keeps the newest record of each key."""

    partitions: Annotated[int, Field(ge=1, le=10_000, description="number of partitions")] = 1
    replication: Annotated[int, Field(ge=1, le=10, description="replicas of each")] = 1


class KafkaSinkSpec(BaseSinkSpec):
    """A topic, exactly once for consumers with `isolation.level=read_committed`."""

    connection_type: ClassVar[str] = "kafka"
    kind: ClassVar[str] = "kafka"
    type: Literal["kafka"]
    topic: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$",
            max_length=200,
            examples=["suppliers"],
            description="the topic; positions are kept in `<topic>.etl-assets-positions`",
        ),
    ]
    create: Annotated[
        CreateTopicSpec | None, Field(description="create the topic if it is missing; by default refuse")
    ] = None
    transaction_timeout_seconds: Annotated[
        int,
        Field(ge=10, le=3_600, description="how long a delivery may take; brokers allow 900 by default"),
    ] = 900

    @property
    def target_field(self) -> str:
        """The field that names the target."""
        return "topic"

    @property
    def target_name(self) -> str:
        """The topic."""
        return self.topic
