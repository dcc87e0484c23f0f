"""What pipeline files show only together: names that are taken, and tables that others read.

A problem belongs to the file that causes it. Of two files that want one name, it is the later one by file
name, so that the earlier one keeps working.

Belongs here: rules about several declarations and the built-in catalog. Does not belong here: what one file
shows by itself (`pipeline_file.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from etl_assets.contracts.column_types import DecimalType, ScalarType
from etl_assets.contracts.columns import TableContract
from etl_assets.errors import ContractError
from etl_assets.pipelines.catalog import Catalog
from etl_assets.pipelines.connection_rights import ConnectionRights
from etl_assets.pipelines.dagster_names import FAILURE_DOMAINS, RESERVED
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.pipelines.followed_tables import problems_of_followed
from etl_assets.pipelines.origin import DeclarationOrigin
from etl_assets.pipelines.pipeline_file import PipelineFile
from etl_assets.pipelines.problem import Path, Problem, near
from etl_assets.pipelines.python_functions import module_problems
from etl_assets.pipelines.schedule_checks import with_schedule_problems
from etl_assets.pipelines.sink_checks import problems_of_sinks, problems_of_targets
from etl_assets.pipelines.spec import PipelineSpec
from etl_assets.pipelines.table_owners import TableOwners, table_names, tables_read


def checked(
    files: Sequence[PipelineFile],
    catalog_base: Catalog,
    connections: Sequence[ConnectionRights] | None = None,
    modules: Sequence[str] | None = None,
) -> tuple[PipelineFile, ...]:
    """Return the files, with the problems that they have together.

    Args:
        files: Files that are read, in the order of their names.
        catalog_base: The built-in pipelines and the platform's own tables.
        connections: The connections of the platform file; None: sinks are not compared with them.
        modules: Python modules that transforms of files may name; None: any.
    """
    if modules is not None:
        files = tuple(file.with_problems(module_problems(file, modules)) for file in files)
    if connections is not None:
        files = tuple(file.with_problems(problems_of_targets(file, connections)) for file in files)
    files = with_schedule_problems(files, [each.name for each in catalog_base.pipelines if each.path])
    found: dict[int, list[Problem]] = {index: [] for index, file in enumerate(files) if file.spec is None}
    while True:
        # A file that is broken takes no name and no table: repeat until no further one is found to be.
        check = _Check(files, catalog_base, frozenset(found))
        check.run()
        if not check.broken:
            break
        found |= check.broken
    found |= check.clashing | check.waiting
    return tuple(
        file.with_problems(found[index]) if found.get(index) else file for index, file in enumerate(files)
    )


def contracts_of(files: Sequence[PipelineFile], catalog_base: Catalog) -> dict[str, TableContract]:
    """Return the contracts of the built-in tables and of those that checked files declare, by their names."""
    check = _Check(files, catalog_base, frozenset())
    check.run()
    return check.contracts


@dataclass
class _Check:
    """One look at all files but those that are known to be broken.

    Attributes:
        broken: Problems of files that are wrong whatever becomes of the others.
        clashing: Problems of files that want a name which is taken.
        waiting: Problems of files that read tables of files with problems.
    """

    files: Sequence[PipelineFile]
    base: Catalog
    excluded: frozenset[int]
    broken: dict[int, list[Problem]] = field(default_factory=dict)
    clashing: dict[int, list[Problem]] = field(default_factory=dict)
    waiting: dict[int, list[Problem]] = field(default_factory=dict)
    contracts: dict[str, TableContract] = field(init=False)
    owners: TableOwners = field(init=False)

    def __post_init__(self) -> None:
        self.contracts = {contract.name: contract for contract in self.base.tables}
        self.owners = TableOwners(self.files, self.base)

    def run(self) -> None:
        specs = {
            index: file.spec
            for index, file in enumerate(self.files)
            if index not in self.excluded and file.spec is not None
        }
        self._clashes(specs)
        open_ = {index: spec for index, spec in specs.items() if index not in {*self.clashing, *self.broken}}
        owner = {name: index for index, spec in open_.items() for name in table_names(spec)}
        while ready := [
            index
            for index, spec in open_.items()
            if all(self._is_there(index, name) for _, name in tables_read(spec))
        ]:
            for index in ready:
                self._resolve(index, open_.pop(index))
        self._unresolved(open_, owner)

    def _is_there(self, index: int, name: str) -> bool:
        return name in self.contracts and self.owners.are_read_by(self.files[index], name)

    def _clashes(self, specs: Mapping[int, PipelineSpec]) -> None:
        pipelines: dict[str, PipelineFile | str] = {
            each.name: "a built-in pipeline" for each in self.base.pipelines
        }
        sensors = {each.sensor for each in self.base.pipelines}
        tables: dict[str, PipelineFile | str] = dict.fromkeys(self.base.names, "the platform")
        for index, spec in specs.items():
            file = self.files[index]
            if own := _own_clash(file, spec):
                self.broken[index] = [own]
                continue
            taken: dict[Path, str] = {}
            if spec.name in pipelines:
                taken[("name",)] = f"the name `{spec.name}` is taken by {_told(pipelines[spec.name], file)}"
            elif spec.sensor_name in sensors:
                taken[("name",)] = f"its sensor `{spec.sensor_name}` is already one of a built-in pipeline"
            else:
                for name, place in table_names(spec).items():
                    if name in tables:
                        taken.setdefault(
                            place, f"its table `{name}` is already a table of {_told(tables[name], file)}"
                        )
            if taken:
                fix = "give one of the two another name"
                self.clashing[index] = [file.problem(place, message, fix) for place, message in taken.items()]
                continue
            pipelines[spec.name] = file
            tables |= dict.fromkeys(table_names(spec), file)

    def _resolve(self, index: int, spec: PipelineSpec) -> None:
        tables = DeclaredTables(spec=spec, contract_of=self.contracts.__getitem__)
        try:
            found = tables.all
        except ContractError as error:
            self.broken[index] = [self.files[index].contract_problem(error)]
            return
        file = self.files[index]
        if problems := [
            *problems_of_followed(file, spec, self.contracts, self.base, self.files),
            *_key_problems(file, spec, tables.table),
            *problems_of_sinks(file, spec, tables),
        ]:
            self.broken[index] = problems
        else:
            self.contracts |= {contract.name: contract for contract in found}

    def _unresolved(
        self,
        open_: Mapping[int, PipelineSpec],
        owner: Mapping[str, int],
    ) -> None:
        declared = {
            name: file.name for file in self.files if file.spec is not None for name in table_names(file.spec)
        }
        needs = {
            index: {
                owner[name]
                for _, name in tables_read(spec)
                if name in owner and self.owners.are_read_by(self.files[index], name)
            }
            for index, spec in open_.items()
        }
        for index, spec in open_.items():
            file = self.files[index]
            circle = _circle(index, needs)
            for place, name in tables_read(spec):
                if self._is_there(index, name):
                    continue
                maker = self._broken_maker(file, name)
                is_hidden = not self.owners.are_read_by(file, name)
                if is_hidden or (name not in declared and maker is None):
                    known = {*self.contracts, *declared}
                    names = sorted(each for each in known if self.owners.are_read_by(file, each))
                    fix = f"{near(name, names)}tables: {', '.join(names)}"
                    self._add(self.broken, index, file.problem(place, f"there is no table `{name}`", fix))
                elif owner.get(name) in circle:
                    way = " → ".join(self.files[each].name for each in (*circle, circle[0]))
                    is_followed = place[0] == "source"
                    message = (
                        f"{'pipelines follow each other' if is_followed else 'lookups go'} in a circle: {way}"
                    )
                    fix = "follow a table outside of it" if is_followed else "take one of these lookups out"
                    self._add(self.broken, index, file.problem(place, message, fix))
                else:
                    message = (
                        f"the table `{name}` is of the pipeline {declared.get(name) or maker}, which has"
                        " problems"
                    )
                    self._add(
                        self.waiting, index, file.problem(place, message, "correct that pipeline first")
                    )

    def _broken_maker(self, reader: PipelineFile, table: str) -> str | None:
        """Return the name of the broken file whose pipeline is called as a table that is looked up."""
        reads_all = reader.origin is not DeclarationOrigin.REST
        of_tenant = [file for file in self.files if reads_all or file.tenant == reader.tenant]
        broken = [file.name for file in of_tenant if file.spec is None]
        own = table.removesuffix("_tombstones").removesuffix("_rejects").removesuffix("_source")
        own = own.removesuffix("_history")
        return next((name for name in broken if name in (table, own)), None)

    @staticmethod
    def _add(problems: dict[int, list[Problem]], index: int, problem: Problem) -> None:
        problems.setdefault(index, []).append(problem)


def _told(owner: PipelineFile | str, file: PipelineFile) -> str:
    """Return what the problem of a file says of the one that has a name: of another tenant's, nothing."""
    if isinstance(owner, str):
        return owner
    return owner.label if owner.tenant == file.tenant else "another tenant"


def _key_problems(file: PipelineFile, spec: PipelineSpec, table: TableContract) -> Iterator[Problem]:
    """Yield the columns that order or identify rows, and whose values cannot be compared."""
    places: dict[Path, str | None] = {
        ("table", "keys", index): name for index, name in enumerate(spec.table.keys)
    }
    places[("table", "sequence_by")] = spec.table.sequence_by
    for place, name in places.items():
        if name is not None and not isinstance(table.column(name).parsed_type, ScalarType | DecimalType):
            type_ = table.column(name).type
            yield file.problem(
                place, f"`{name}` is {type_}, which has no order", "name a column of a simple type"
            )


def _own_clash(file: PipelineFile, spec: PipelineSpec) -> Problem | None:
    if spec.table_name in RESERVED or spec.table_name == FAILURE_DOMAINS:
        return file.problem(
            table_names(spec)[spec.table_name],
            f"no table can be named `{spec.table_name}`: Dagster keeps the name for itself",
            f"give it another name, such as `{spec.table_name}_rows`",
        )
    expected = (2 + 2 * spec.keeps_records) + (spec.tombstones_name is not None) + 2 * len(spec.sinks)
    expected += 2 * spec.table.history
    if len(table_names(spec)) == expected:
        return None
    return file.problem(
        ("table", "name"),
        f"the table `{spec.table_name}` is named as the table of accepted records or of dead letters",
        f"give it another name, such as `{spec.name}`",
    )


def _circle(start: int, needs: Mapping[int, set[int]]) -> tuple[int, ...]:
    """Return a way from a file over what it needs back to itself; empty if there is none."""
    ways: list[tuple[int, ...]] = [(start,)]
    seen = set()
    while ways:
        way = ways.pop()
        for each in sorted(needs.get(way[-1], ())):
            if each == start:
                return way
            if each not in seen:
                seen.add(each)
                ways.append((*way, each))
    return ()
