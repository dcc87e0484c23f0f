"""A pipeline: the stages that rows go through, from a source to the tables that people read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.pipelines.stage import OpenSource, Stage

if TYPE_CHECKING:
    from etl_assets.placement.domains import FailureDomain


MissingRows = Callable[["FailureDomain"], Mapping[str, Mapping[str, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Stages in the order in which they run.

    Attributes:
        name: The pipeline's name.
        reference: Stages that load the tables others look values up in. They run before the data path.
        path: The data path: what each batch of the source goes through, in this order. The first stage
            reads the source.
        derived: Stages that read tables of the data path and run beside it, at their own interval.
        counted: Names of the tables whose rows are counted for the plots of the failure domains.
        sensor: Name of the sensor of its source. Empty: `<name>_files`.
        missing_rows: Returns the rows that tables lack by table and day although they have read their input. None:
            nothing is compared.
    """

    name: str
    reference: tuple[Stage, ...] = ()
    path: tuple[Stage, ...] = ()
    derived: tuple[Stage, ...] = ()
    counted: tuple[str, ...] = ()
    sensor: str = ""
    missing_rows: MissingRows | None = None

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages, in the order in which they run."""
        return (*self.reference, *self.path, *self.derived)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tables of its stages."""
        return tuple(stage.name for stage in self.stages)

    @property
    def sources(self) -> tuple[OpenSource, ...]:
        """The files that its stages read."""
        return tuple(stage.source for stage in self.stages if stage.source is not None)
