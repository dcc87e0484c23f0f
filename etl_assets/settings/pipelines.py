"""Settings of the pipelines that an installation runs: built-in ones, and where others are declared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from etl_assets.built_in import NAMES
from etl_assets.pipelines.lag_limit import LagLimit
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

    python_modules: Annotated[
        tuple[str, ...] | None,
        Field(
            examples=["[shop.transforms]", "[]"],
            description="Python modules whose functions `python` transforms of files may name; by default any"
            " that can be imported. Declarations over REST name those of `rest.modules` only",
        ),
    ] = None

    max_lag_rows: Annotated[
        int | None,
        Field(
            ge=1,
            description="lag limit of required sinks that declare no `max_lag`: rows that a sink may lack"
            " before the source of its pipeline is read no further; by default any number",
        ),
    ] = None
    max_lag_seconds: Annotated[
        float | None,
        Field(
            ge=1,
            description="the same as the age of the oldest commit that a sink lacks; by default any age",
        ),
    ] = None

    @property
    def lag_limit(self) -> LagLimit | None:
        """The limit of required sinks that declare none; None if there is none."""
        if self.max_lag_rows is None and self.max_lag_seconds is None:
            return None
        return LagLimit(rows=self.max_lag_rows, seconds=self.max_lag_seconds)

    @field_validator("built_in")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in value if name not in NAMES]:
            raise ValueError(f"there is no built-in pipeline {unknown[0]!r}; there are {', '.join(NAMES)}")
        return value
