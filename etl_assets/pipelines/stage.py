"""A stage of a pipeline: the tables that it reads and writes, and how it may be placed and undone.

Belongs here: the declaration. Does not belong here: what the stage does with rows (its step, in `steps/`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etl_assets.contracts.columns import TableContract
from etl_assets.pipelines.lag_limit import LagLimit
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.pipelines.row_versions import RowVersions
from etl_assets.pipelines.undo_policy import UndoPolicy

if TYPE_CHECKING:
    from etl_assets.ingest.file_source import FileSource
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import Settings
    from etl_assets.steps.step import Step, StepArguments

BuildStep = Callable[["StepArguments"], "Step"]
OpenSource = Callable[["Settings", "FailureDomain"], "FileSource"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stage reads tables, or a source, and writes one table.

    Attributes:
        table: The table it writes.
        build_step: Builds the step that does the work of a run.
        placement: The class of its work, for the placement policy.
        group: The group of its asset in the asset graph.
        inputs: Names of the tables whose changes it follows, with a cursor in each. Empty: it reads a source,
            and its rows cannot be made again.
        driving_inputs: The inputs that start a day of which the table has no rows yet. Empty: all inputs.
        lookups: Names of tables that it looks values up in. A change in one of them makes no row again.
        follows: Names of the tables whose changes are the records of its source, with a position in each. An
            undo of one of them is more changes.
        rejects: The table of the rows it rejects; None if it rejects none.
        tombstones: The table with the tombstones of the rows it deletes; None if it deletes none. An undo
            leaves it as it is: the run that makes the rows again replaces it.
        undo: How its table takes part in an undo.
        undo_of_rejects: How the table of its rejected rows does.
        source: Returns the files that it reads, of an installation and the domain it is placed in; None: it
            reads tables, or something else.
        label: Its name in the table of its rejected rows, and in dead letters. Empty: the name of its table.
        keeps_records: Whether the table of a stage that reads a source has each accepted record, with its
            place. Otherwise the table of rejected rows says which replays were accepted.
        takes_replays: Whether a record that it rejected is replayed to it, with its input row. Otherwise the
            record is replayed to the source of its pipeline, as a new one.
        owners: Owners of its asset. Empty: the platform file's.
        kinds: The kinds of its asset in Dagster's asset graph.
        figures: Names of figures that its step reports, beside those of every step.
        reads_landing: Whether its source is the landing folder of the platform file.
        delivers: Whether it delivers rows of its inputs to a sink. Its table has a row for each delivery: an
            undo leaves it as it is, and the next delivery brings the target to where the input is then.
        is_required: Whether a sink that is over its lag limit pauses the source of the pipeline.
        lag_limit: That limit; None: the platform file's.
        versions: The versions of rows that follow from its table, as a query; None if it has none.
        withdraws: Whether that delivery also removes the rows that the undo took out.
    """

    table: TableContract
    build_step: BuildStep
    group: str
    placement: PlacementClass = PlacementClass.TRANSFORM
    inputs: tuple[str, ...] = ()
    driving_inputs: tuple[str, ...] = ()
    lookups: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    rejects: TableContract | None = None
    tombstones: TableContract | None = None
    undo: UndoPolicy = field(default_factory=UndoPolicy)
    undo_of_rejects: UndoPolicy = field(default_factory=UndoPolicy)
    source: OpenSource | None = None
    label: str = ""
    keeps_records: bool = True
    takes_replays: bool = False
    owners: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("pyspark", "deltalake")
    figures: tuple[str, ...] = ()
    reads_landing: bool = False
    delivers: bool = False
    is_required: bool = True
    lag_limit: LagLimit | None = None
    withdraws: bool = True
    versions: RowVersions | None = None

    @property
    def name(self) -> str:
        """The name of its table, which is also the asset's."""
        return self.table.name

    @property
    def tables(self) -> tuple[TableContract, ...]:
        """The tables that it writes: its own, and those of its rejected rows and of tombstones."""
        return (*self.undone, *(() if self.tombstones is None else (self.tombstones,)))

    @property
    def undone(self) -> tuple[TableContract, ...]:
        """The tables of which an undo takes rows out: its own, and the one of its rejected rows."""
        return (self.table,) if self.rejects is None else (self.table, self.rejects)

    @property
    def name_in_rejects(self) -> str:
        """What the rows that it rejects call it."""
        return self.label or self.name

    @property
    def can_be_made_again(self) -> bool:
        """Whether its rows come from other tables, so that the stage can make them again."""
        return bool(self.inputs) and not self.delivers


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTable:
    """A table that the platform keeps for itself: no stage writes it.

    Attributes:
        table: The table.
        placement: The class of the work that writes it.
        undo: How it takes part in an undo.
    """

    table: TableContract
    placement: PlacementClass
    undo: UndoPolicy = field(default_factory=UndoPolicy)
