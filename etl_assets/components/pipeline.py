"""The component `etl_assets.Pipeline`: a declared pipeline in a Dagster project.

Belongs here: the component's type. Does not belong here: which definitions it has (`project.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import BaseModel, ConfigDict

from etl_assets.components.pipeline_scaffolder import PipelineScaffolder

if TYPE_CHECKING:
    from typing import Self


class PipelineAttributes(BaseModel):
    """Any mapping: a declaration that Dagster rejected would take all definitions of the project with it."""

    model_config = ConfigDict(extra="allow")

    @classmethod
    def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
        """Return the fields of a declaration, for editors. `dg check yaml` finds nothing wrong by them."""
        from etl_assets.pipelines.json_schema import hints

        return hints()


@dg.scaffold_with(PipelineScaffolder)
class PipelineComponent(dg.Component):
    """Records of a source become the rows of a Delta table: typed, checked, each counted once.

    The records are kept as they came in the asset `<name>_source`; records that are not accepted become dead
    letters. The attributes are those of a pipeline file.
    """

    def __init__(self, folder: Path | None = None, document: int | None = None) -> None:
        """Identify the declaration.

        Args:
            folder: The folder of the `defs.yaml`.
            document: The number of the YAML document in it, from 0.
        """
        self.folder, self.document = folder, document

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return what the UI shows of the type."""
        return dg.ComponentTypeSpec(produces=["asset", "asset_check", "sensor"])

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """Return the model of the attributes."""
        return PipelineAttributes

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Return the component of a YAML document. Its attributes are read with those of all other
        pipelines.
        """
        key = context.component_path.instance_key
        return cls(context.path, key if isinstance(key, int) else None)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the pipeline's assets, checks and sensor; of a declaration with problems, an asset that shows
        them.

        Raises:
            SettingsError: the platform file is wrong, or does not name the project.
            PipelinesBroken: Dagster validates definitions (`dg check defs`), and a declaration has problems.
        """
        from etl_assets.components.project import pipeline_component_definitions

        return pipeline_component_definitions(self, context)
