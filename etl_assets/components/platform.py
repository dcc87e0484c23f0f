"""The component `etl_assets.Platform`: all that the pipelines of a Dagster project share.

Belongs here: the component's type. Does not belong here: which definitions it has (`project.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from typing import Self


class PlatformAttributes(BaseModel):
    """Attributes of the component."""

    model_config = ConfigDict(extra="forbid")

    executor: Annotated[
        Literal["in_process", "project"],
        Field(
            description="what runs the steps of the project's runs: one process per run, or the executor that"
            " the project itself defines"
        ),
    ] = "in_process"


class PlatformComponent(dg.Component):
    """What all pipelines of a project share: resources, dead letters, upkeep, automation, and the pipelines
    of the home folder.

    A project needs it only to change an attribute, or if it has no component of type `etl_assets.Pipeline`:
    the first of them brings it along.
    """

    def __init__(self, executor: Literal["in_process", "project"] = "in_process") -> None:
        """Choose the executor."""
        self.executor = executor

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return what the UI shows of the type."""
        return dg.ComponentTypeSpec(
            produces=["asset", "asset_check", "sensor", "job", "schedule", "resource"]
        )

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """Return the model of the attributes."""
        return PlatformAttributes

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Return the component of a YAML document."""
        return cls(attributes.executor) if isinstance(attributes, PlatformAttributes) else cls()

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions.

        Raises:
            SettingsError: the platform file is wrong, or the project has two components of this type.
        """
        from etl_assets.components.project import platform_component_definitions

        return platform_component_definitions(self, context)
