"""Settings of declared pipelines: where, apart from the home folder, their files are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from etl_assets.settings.section import Section


class PipelineSettings(Section):
    """Where pipelines are declared, apart from the files in the home folder's `pipelines`."""

    defs_folders: Annotated[
        tuple[Path, ...] | None,
        Field(
            examples=["../src/shop/defs"],
            description="defs folders of Dagster projects, relative to the home folder, whose components of type"
            " `etl_assets.Pipeline` declare pipelines; by default that of the project in which the home folder lies",
        ),
    ] = None
