"""Table contracts: the promises of a table, declared once.

Belongs here: the form of a declaration, and what follows from it without Spark (column DDL, lineage). Does
not belong here: the tables themselves (`tables/`), the rules (`rules.py`), Spark's and pandera's counterparts
(`spark_types.py`, `pandera_models.py`).

A declaration validates itself: a contract that contradicts itself raises `ContractError` at import, not in a
run.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace

from etl_assets.contracts import column_types
from etl_assets.contracts.column_types import ColumnType
from etl_assets.contracts.rules import NotNull, Rule
from etl_assets.errors import ContractError

PARTITION_DATE = "partition_date"
"""Column of the day on which a record arrived."""
_NAME = re.compile(r"_?[a-z][a-z0-9_]*")
"""A leading underscore marks a column of the platform's own in a table whose other columns a user names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSource:
    """A column of another table that a column is derived from."""

    table: str
    column: str


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: Lower case with underscores.
        type: A type of the closed set in `column_types.py`, as DDL text.
        description: Meaning of the value, with its unit; one line.
        nullable: Whether the value may be missing.
        rules: Rules that a present value must satisfy, validated in this order.
        derived_from: The `table.column`s it is derived from, for lineage; empty if it comes from outside or
            from the step itself.
    """

    name: str
    type: str
    description: str
    nullable: bool = False
    rules: tuple[Rule, ...] = ()
    derived_from: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require(
            bool(_NAME.fullmatch(self.name)), f"the column name {self.name!r}", "use lower case, digits and _"
        )
        _require(
            bool(self.description.strip()) and "\n" not in self.description,
            f"the description of {self.name}",
            "say what the column means in one line",
        )
        parsed_type = self.parsed_type
        for rule in self.rules:
            _require(
                rule.fits(parsed_type) and not isinstance(rule, NotNull),
                f"the rule {rule} of {self.name}, which is {self.type}",
                "give a rule for this type; NotNull follows from nullable=False",
            )
        for source in self.derived_from:
            _require(
                len(parts := source.split(".")) == 2 and all(map(_NAME.fullmatch, parts)),
                f"{source!r}, which {self.name} is derived from",
                "write it as 'table.column'",
            )

    @property
    def parsed_type(self) -> ColumnType:
        """The type as a parsed value."""
        return column_types.parse(self.type)

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """The declared rules, preceded by `NotNull` if the column is not nullable."""
        return self.rules if self.nullable else (NotNull(), *self.rules)

    @property
    def sources(self) -> tuple[ColumnSource, ...]:
        """The columns that it is derived from."""
        return tuple(
            ColumnSource(table=t, column=c) for t, c in (ref.split(".") for ref in self.derived_from)
        )

    def taken_from(self, table: str) -> Column:
        """Return the same column for a table that copies it unchanged from `table`."""
        return replace(self, derived_from=(f"{table}.{self.name}",))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableContract:
    """One table.

    Attributes:
        name: Name of the table and its asset.
        description: Meaning of a row, and the promises of the table.
        columns: Columns in the order of CREATE TABLE.
        merge_key: Columns that identify a row; unique in the whole table.
        ordering: Column whose higher value wins between two rows of one merge key; None if the first row
            wins.
        delta_partition: Columns that Delta partitions files by.
        append_only: Whether rows are never updated. Only then may a part of the merge key be null, and an
            upsert must not use that part: it would insert such a row again each time.
        offset_column: Column of the offsets that the platform assigns to the rows: dense, from 0, over all
            days.
        nullable_keys: NULL in a part of the merge key is a value like any other.
        trace_column: Column with the W3C trace context of the record that a row is from; None if there is
            none.
    """

    name: str
    description: str
    columns: tuple[Column, ...]
    merge_key: tuple[str, ...]
    ordering: str | None = None
    delta_partition: tuple[str, ...] = ()
    append_only: bool = False
    offset_column: str | None = None
    nullable_keys: bool = False
    trace_column: str | None = None

    def __post_init__(self) -> None:
        self._check(
            bool(_NAME.fullmatch(self.name)), f"is named {self.name!r}", "use lower case, digits and _"
        )
        self._check(bool(self.description.strip()), "has no description", "say what a row is")
        self._check(bool(self.columns), "has no columns", "declare them")
        twice = sorted({name for name in self.names if self.names.count(name) > 1})
        self._check(
            not twice, f"has more than one column {', '.join(twice)}", "give each column a name of its own"
        )
        self._check(bool(self.merge_key), "has no merge key", "name the columns that tell two rows apart")
        for part, names in self._named_parts().items():
            self._check(len(set(names)) == len(names), f"names a column twice in its {part}", "name it once")
            for name in names:
                self._check(name in self.names, f"has no column {name!r} for its {part}", self._near(name))
        for name in () if self.append_only or self.nullable_keys else self.merge_key:
            self._check(
                not self.column(name).nullable,
                f"has {name!r} in its merge key, which may be null",
                "make the column nullable=False, or the table append_only=True",
            )
        for name in (*self.merge_key, *self.delta_partition):
            self._check(
                self.column(name).type != "DOUBLE",
                f"has {name!r}, a DOUBLE, in its merge key or Delta partition",
                "use a DECIMAL there: two doubles that look the same may differ",
            )
        for name in self.delta_partition:
            self._check(
                isinstance(self.column(name).parsed_type, column_types.ScalarType),
                f"is partitioned by {name!r}, which is {self.column(name).type}",
                "partition by a column of a simple type",
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The column names in order."""
        return tuple(column.name for column in self.columns)

    @property
    def is_partitioned(self) -> bool:
        """Whether its files are partitioned, by day or by another column."""
        return bool(self.delta_partition)

    @property
    def is_daily(self) -> bool:
        """Whether its files are partitioned by the day on which records arrived."""
        return PARTITION_DATE in self.delta_partition

    @property
    def batch_column(self) -> str | None:
        """The column with the version of the table that wrote a row; None if it has none."""
        # First the name that no declared column can have: one of them may be called `batch_id`.
        return next((name for name in ("_batch_id", "batch_id") if name in self.names), None)

    def column(self, name: str) -> Column:
        """Return the column of a name.

        Raises:
            ContractError: the table has no such column.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise ContractError(
            f"the contract of {self.name} has no column {name!r}",
            fix=self._near(name),
            table=self.name,
            column=name,
        )

    def without(self, *names: str) -> tuple[Column, ...]:
        """Return the columns except some: those of a frame before the step adds the others.

        Raises:
            ContractError: one of the names is not a column.
        """
        left_out = {self.column(name).name for name in names}
        return tuple(column for column in self.columns if column.name not in left_out)

    def lineage(self) -> dict[str, tuple[ColumnSource, ...]]:
        """Return the source columns of each column that is derived from other tables."""
        return {column.name: column.sources for column in self.columns if column.sources}

    def _named_parts(self) -> dict[str, tuple[str, ...]]:
        ordering = () if self.ordering is None else (self.ordering,)
        trace = () if self.trace_column is None else (self.trace_column,)
        return {
            "merge key": self.merge_key,
            "ordering": ordering,
            "Delta partition": self.delta_partition,
            "trace context": trace,
        }

    def _near(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.names, n=1)
        return f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(self.names)}"

    def _check(self, holds: bool, what: str, fix: str) -> None:
        if not holds:
            raise ContractError(f"the contract of {self.name} {what}", fix=fix, table=self.name)


def _require(holds: bool, what: str, fix: str) -> None:
    if not holds:
        raise ContractError(f"a contract cannot have {what}", fix=fix)
