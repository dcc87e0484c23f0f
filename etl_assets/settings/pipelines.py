"""Settings of the pipelines that an installation runs: built-in ones, and where others are declared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from etl_assets.built_in import NAMES
from etl_assets.settings.section import Section


class PipelineSettings(Section):
    """The pipelines that run, apart from those that files in the home folder's `pipelines` declare."""

    built_in: Annotated[
        tuple[str, ...],
        Field(
            examples=["[orders]", "[]"],
            description="built-in pipelines that the installation runs; `[]` leaves only those that are"
            " declared",
        ),
    ] = NAMES
    defs_folders: Annotated[
        tuple[Path, ...] | None,
        Field(
            examples=["../src/shop/defs"],
            description="defs folders of Dagster projects, relative to the home folder, whose components of"
            " type `etl_assets.Pipeline` declare pipelines; by default that of the project in which the home"
            " folder lies",
        ),
    ] = None

    @field_validator("built_in")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in value if name not in NAMES]:
            raise ValueError(f"there is no built-in pipeline {unknown[0]!r}; there are {', '.join(NAMES)}")
        return value
