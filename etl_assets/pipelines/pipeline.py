"""A pipeline: the stages that rows go through, from a source to the tables that people read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.pipelines.invariant import Invariant
from etl_assets.pipelines.schedule import Schedule
from etl_assets.pipelines.stage import OpenSource, Stage

if TYPE_CHECKING:
    import datetime as dt

    from fastapi import APIRouter

    from etl_assets.observability.history import History
    from etl_assets.observability.traced_records import TracedRecord
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import Settings

MissingRows = Callable[["FailureDomain"], Mapping[str, Mapping[str, int]]]
"""Returns rows by table and day."""
FindHistory = Callable[["Settings", str], "History | None"]
"""Returns the history of a record by its id; None if no table of the pipeline has the id."""
FindTraced = Callable[["Settings", str], "Iterator[TracedRecord]"]
"""Returns the records of a W3C trace by its id."""
MakeInput = Callable[["Settings", "dt.date", int], None]
"""Writes files into the source, for a day; another number makes other records."""


MakeRouter = Callable[["Settings"], "APIRouter"]
"""Returns routes of the HTTP server. A router's lifespan opens and closes what its routes need."""


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
        missing_rows: Returns the rows that tables lack by table and day although they have read their input.
            None: nothing is compared.
        invariants: Conditions that hold after every run.
        history: Finds the history of a record. None: records have no ids.
        traced: Finds the records of a W3C trace. None: records have none.
        made_up_input: Writes input for a rehearsal. None: the pipeline is not rehearsed.
        reprocess_from: Name of the table that a reprocess begins with if none is named. Empty: one has to be
            named.
        schedule: When it runs. None: as soon as its source has something new.
        priority: The higher, the sooner it is worked on.
        router: Makes the read-only routes that the HTTP server has for the pipeline. None: it has none.
    """

    name: str
    reference: tuple[Stage, ...] = ()
    path: tuple[Stage, ...] = ()
    derived: tuple[Stage, ...] = ()
    counted: tuple[str, ...] = ()
    sensor: str = ""
    missing_rows: MissingRows | None = None
    invariants: tuple[Invariant, ...] = ()
    history: FindHistory | None = None
    traced: FindTraced | None = None
    made_up_input: MakeInput | None = None
    reprocess_from: str = ""
    schedule: Schedule | None = None
    priority: int = 0
    router: MakeRouter | None = None

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
