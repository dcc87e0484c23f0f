"""The catalog: all pipelines of an installation, and what can be asked of them together.

Belongs here: questions about tables and stages whose answer is in the declarations. Does not belong here:
anything that looks at a table (`delta/table.py`) or at a failure domain.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from etl_assets.contracts.columns import TableContract
from etl_assets.errors import ContractError, NotFound
from etl_assets.pipelines.invariant import Invariant
from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.pipelines.row_versions import RowVersions
from etl_assets.pipelines.stage import Stage, SystemTable
from etl_assets.pipelines.undeclared import UndeclaredTables
from etl_assets.pipelines.undo_policy import UndoPolicy

_FIGURES_OF_READING = ("read", "accepted", "duplicate", "conflict", "rejected", "filtered", "skipped")
_FIGURES_OF_WRITING = ("inserted", "updated", "deleted", "ignored", "removed")


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """The pipelines of an installation, and the tables that the platform keeps for itself.

    Attributes:
        pipelines: The pipelines.
        system_tables: The tables that the platform keeps for itself.
        undeclared: Finds the tables that no pipeline declares. None: they are not asked for.

    Raises:
        ContractError: two of them declare a table of one name, or an input is no table of the catalog.
    """

    pipelines: tuple[Pipeline, ...] = ()
    system_tables: tuple[SystemTable, ...] = ()
    undeclared: UndeclaredTables | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        names = [contract.name for contract in self.tables]
        for name in sorted({name for name in names if names.count(name) > 1}):
            raise ContractError(
                f"the table {name} is declared more than once",
                fix="give one of them another name",
                table=name,
            )
        for stage in self.stages:
            for name in (*stage.inputs, *stage.driving_inputs, *stage.lookups, *stage.follows):
                if name not in names:
                    raise ContractError(
                        f"{stage.name} reads {name!r}, which is no table of the catalog",
                        fix=_near(name, names),
                        table=stage.name,
                    )

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of all pipelines, each pipeline's in the order in which they run."""
        return tuple(stage for pipeline in self.pipelines for stage in pipeline.stages)

    @cached_property
    def sources(self) -> tuple[Stage, ...]:
        """The stages that read files, in the order of their pipelines."""
        return tuple(stage for stage in self.stages if stage.source is not None)

    @cached_property
    def scheduled(self) -> frozenset[str]:
        """Names of the pipelines with a schedule: new data of their sources starts no run."""
        return frozenset(each.name for each in self.pipelines if each.schedule is not None)

    @cached_property
    def tables(self) -> tuple[TableContract, ...]:
        """All tables: those of stages, data path first, of rejected rows, of tombstones, and the
        platform's own.
        """
        rejects = (stage.rejects for stage in self.stages)
        tombstones = (stage.tombstones for stage in self.stages)
        return (
            *(
                stage.table
                for pipeline in self.pipelines
                for stage in (*pipeline.path, *pipeline.derived, *pipeline.reference)
            ),
            *(each for each in (*rejects, *tombstones) if each is not None),
            *(each.table for each in self.system_tables),
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all tables."""
        return tuple(contract.name for contract in self.tables)

    @cached_property
    def counted(self) -> tuple[str, ...]:
        """Names of the tables whose rows are counted for the plots of the failure domains."""
        return tuple(name for pipeline in self.pipelines for name in pipeline.counted)

    @cached_property
    def reference(self) -> tuple[str, ...]:
        """Names of the tables with reference data."""
        return tuple(stage.name for pipeline in self.pipelines for stage in pipeline.reference)

    @cached_property
    def invariants(self) -> tuple[Invariant, ...]:
        """The invariants of all pipelines, each pipeline's in the order of its data path."""
        return tuple(invariant for pipeline in self.pipelines for invariant in pipeline.invariants)

    @cached_property
    def figures(self) -> tuple[str, ...]:
        """Names of the figures that steps report, in the order in which they are shown.

        Their values are numbers, which Dagster plots. Refused records are not a figure of their own: they are
        the sum of `conflict` and `rejected`.
        """
        of_stages = dict.fromkeys(name for stage in self.stages for name in stage.figures)
        return (*_FIGURES_OF_READING, *of_stages, *_FIGURES_OF_WRITING)

    @cached_property
    def reads_landing(self) -> bool:
        """Whether a stage reads the landing folder."""
        return any(stage.reads_landing for stage in self.stages)

    @cached_property
    def reprocess_from(self) -> tuple[str, ...]:
        """Names of the tables that a reprocess begins with if none is named."""
        return tuple(each.reprocess_from for each in self.pipelines if each.reprocess_from)

    @cached_property
    def made_again(self) -> tuple[str, ...]:
        """Names of the tables whose stages can make their rows again, each after its inputs."""
        return tuple(stage.name for stage in self.stages if stage.can_be_made_again)

    @cached_property
    def versions(self) -> Mapping[str, RowVersions]:
        """The queries of versions of rows, by the names that they are queried by."""
        return {each.versions.name: each.versions for each in self.stages if each.versions is not None}

    def table(self, name: str) -> TableContract:
        """The contract of the table of that name.

        Raises:
            NotFound: there is no such table.
        """
        if name not in self._contracts:
            raise NotFound(f"there is no table {name!r}", fix=_near(name, self.names), table=name)
        return self._contracts[name]

    def with_undeclared(self, undeclared: UndeclaredTables) -> Catalog:
        """Return this catalog, with the tables that no pipeline declares."""
        catalog = copy.copy(self)  # It is checked, and what has been computed from its declarations holds.
        object.__setattr__(catalog, "undeclared", undeclared)
        return catalog

    def every_name(self) -> tuple[str, ...]:
        """Return the names of all tables: those that are declared, then those that are there besides."""
        return (*self.names, *(() if self.undeclared is None else self.undeclared.names()))

    def unlisted(self) -> tuple[str, ...]:
        """Return why `every_name` may lack tables, in sentences; empty if it does not."""
        return () if self.undeclared is None else self.undeclared.unlisted()

    def contract_of(self, name: str) -> TableContract | None:
        """The contract of a table; None for a table that no pipeline declares.

        Raises:
            NotFound: there is no such table.
        """
        if (contract := self._contracts.get(name)) is not None:
            return contract
        if self.undeclared is not None and self.undeclared.has(name):
            return None
        unlisted = "".join(f"; {why}" for why in self.unlisted())
        raise NotFound(
            f"there is no table {name!r}{unlisted}", fix=_near(name, self.every_name()), table=name
        )

    def pipeline_of(self, name: str) -> Pipeline | None:
        """The pipeline whose stage writes a table; None if no stage does."""
        stage = self._stages.get(name)
        return next((each for each in self.pipelines if stage in each.stages), None)

    def looked_up_by(self, pipeline: str) -> frozenset[str]:
        """Names of the other pipelines in whose tables a pipeline looks values up."""
        looks_up = {
            name
            for each in self.pipelines
            if each.name == pipeline
            for stage in each.stages
            for name in stage.lookups
        }
        found = {each.name for name in looks_up if (each := self.pipeline_of(name)) is not None}
        return frozenset(found - {pipeline})

    def stage_of(self, name: str) -> Stage | None:
        """The stage that writes a table, also as the table of its rejected rows; None if no stage does."""
        return self._stages.get(name)

    def stage(self, name: str) -> Stage:
        """The stage whose own table has that name.

        Raises:
            NotFound: no stage has.
        """
        stage = self._stages.get(name)
        if stage is None or stage.name != name:
            names = [each.name for each in self.stages]
            raise NotFound(f"no stage writes {name!r}", fix=_near(name, names), table=name)
        return stage

    def inputs_of(self, name: str) -> tuple[str, ...]:
        """Names of the tables whose changes a table follows.

        Empty for a table that is made from a source, or by the platform itself.
        """
        stage = self._stages.get(name)
        return stage.inputs if stage is not None and stage.name == name else ()

    def placement_of(self, name: str) -> PlacementClass:
        """The class of the work that writes a table; for one that no pipeline declares, `transform`.

        Raises:
            NotFound: there is no such table.
        """
        self.contract_of(name)
        return self._placements.get(name, PlacementClass.TRANSFORM)

    def undo_of(self, name: str) -> UndoPolicy:
        """How a table takes part in an undo.

        Raises:
            NotFound: there is no such table.
        """
        self.contract_of(name)
        return self._undo.get(name) or UndoPolicy()

    def rejects_of_source(self, name: str) -> Stage | None:
        """The stage that reads a source and rejects rows into this table; None for any other table."""
        stage = self._stages.get(name)
        if stage is None or stage.rejects is None or stage.rejects.name != name or stage.inputs:
            return None
        return stage

    def downstream_of(self, names: Collection[str]) -> tuple[str, ...]:
        """Some tables and all that are made from them, each after those that it is made from."""
        found, ordered = set(names), []
        for stage in self.stages:
            # What became of a replay is only in the rejects of a stage that keeps no records.
            goes_along = stage.name in found and not stage.keeps_records
            if goes_along or (
                stage.can_be_made_again and (stage.name in found or not found.isdisjoint(stage.inputs))
            ):
                ordered += [contract.name for contract in stage.undone]
                found.update(ordered)
            else:
                ordered += [contract.name for contract in stage.tables if contract.name in found]
        return (*ordered, *sorted(found.difference(ordered)))

    def sinks_of(self, names: Collection[str]) -> tuple[Stage, ...]:
        """The stages that deliver some tables to sinks."""
        return tuple(each for each in self.stages if each.delivers and not set(names).isdisjoint(each.inputs))

    def sources_of(self, names: Collection[str]) -> tuple[str, ...]:
        """Names of the tables of records that some tables are made from, directly or through others."""
        wanted = set(names)
        for stage in reversed(self.stages):
            if stage.name in wanted:
                wanted.update(contract for each in stage.inputs for contract in self._with_stage(each))
        return tuple(stage.name for stage in self.sources if stage.name in wanted)

    def _with_stage(self, name: str) -> tuple[str, ...]:
        stage = self._stages.get(name)
        return (name,) if stage is None else (name, stage.name)

    def made_again_from(self, names: Collection[str]) -> tuple[str, ...]:
        """Names of the tables to make again if rows of some tables change, in the order in which they are
        made.

        Those among `names` that can be made again are included.
        """
        downstream = self.downstream_of(names)
        return tuple(name for name in self.made_again if name in downstream)

    @cached_property
    def _contracts(self) -> Mapping[str, TableContract]:
        return {contract.name: contract for contract in self.tables}

    @cached_property
    def _stages(self) -> Mapping[str, Stage]:
        return {contract.name: stage for stage in self.stages for contract in stage.tables}

    @cached_property
    def _placements(self) -> Mapping[str, PlacementClass]:
        of_stages = {name: stage.placement for name, stage in self._stages.items()}
        return of_stages | {each.table.name: each.placement for each in self.system_tables}

    @cached_property
    def _undo(self) -> Mapping[str, UndoPolicy]:
        own = {stage.name: stage.undo for stage in self.stages}
        rejects = {each.rejects.name: each.undo_of_rejects for each in self.stages if each.rejects}
        tombstones = {
            each.tombstones.name: UndoPolicy(
                refusal=f"it belongs to the rows of {each.name}",
                fix=f"restore {each.name}, or reprocess it: the run afterwards makes its tombstones again",
            )
            for each in self.stages
            if each.tombstones
        }
        return own | rejects | tombstones | {each.table.name: each.undo for each in self.system_tables}


def _near(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(names) or 'none: there is none'}"
