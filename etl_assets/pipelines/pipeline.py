"""A pipeline: the stages that rows go through, from a source to the tables that people read."""

from __future__ import annotations

from dataclasses import dataclass

from etl_assets.pipelines.stage import Stage


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
    """

    name: str
    reference: tuple[Stage, ...] = ()
    path: tuple[Stage, ...]
    derived: tuple[Stage, ...] = ()
    counted: tuple[str, ...] = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages, in the order in which they run."""
        return (*self.reference, *self.path, *self.derived)
