"""The write mode of a user's asset and its options (`WriteSpec`), as declared in the asset's metadata.

Belongs here: the allowed declarations, their spelling in metadata, and their contradictions. Does not belong
here: the MERGE of an upsert or insert (`upsert.py`), and the meaning of Dagster's partition keys.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from etl_assets.contracts.write_mode import WriteMode
from etl_assets.delta.write.changes import IS_DELETED
from etl_assets.delta.write.upsert import METADATA_PREFIX, UpsertSpec
from etl_assets.errors import ContractError

_Kind = TypeVar("_Kind", bound=StrEnum)
PARTITION_EXPR = "partition_expr"
"""Metadata key by which Dagster's own IO managers name the column of an asset's partition."""
_ALIASES = {"merge_key": "keys", "ordering": "sequence_by"}
"""Earlier names of fields, which are still read."""


class SchemaChanges(StrEnum):
    """Changes that a frame may make to its table's columns.

    REJECT: none.
    ADD: new columns are added at the end; stored rows have NULL there.
    WIDEN: as ADD, and a column becomes wider where the frame's column is: whole numbers, FLOAT to DOUBLE,
    DECIMAL to more digits.
    """

    REJECT = "reject"
    ADD = "add"
    WIDEN = "widen"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSpec:
    """How rows of an asset meet the rows of its table.

    Attributes:
        write_mode: The effect of a run on the table.
        keys: Columns that identify a row, of an upsert or insert: unique in the table after every commit.
        nullable_keys: NULL in a key is a value like any other: rows with NULL there are the same row. Without
            it a row with NULL in a key is refused.
        sequence_by: Column whose higher value is the newer row. An upsert ignores a row that is not newer
            than the stored one. Of one frame an upsert takes the highest row of a key, an insert the lowest.
            Without it a key that comes twice in one frame is an error, and an upsert takes a row that differs
            in any column.
        delta_partition: Column by which Delta lays out the files and which identifies the asset's partitions.
        partition_bound: A key never moves to another partition, so that a merge reads the partitions of the
            run only.
        columns: The table's columns as Spark SQL declares them, such as `id STRING, day DATE`, for an asset
            that reads its own earlier partitions: before its table exists, it gets an empty frame with these
            columns.
        schema_changes: Changes that a frame may make to the table's columns.
        apply_as_deletes: With the write mode apply_changes: Spark SQL condition on the frame's columns. A row
            that meets it deletes the row of its keys, unless that one is newer.
        except_column_list: Columns of the frame that are not stored, such as the kind of a change.

    Raises:
        ContractError: the fields contradict each other.
    """

    write_mode: WriteMode = WriteMode.UPSERT
    keys: tuple[str, ...] = ()
    nullable_keys: bool = False
    sequence_by: str | None = None
    delta_partition: str | None = None
    partition_bound: bool = False
    columns: str | None = None
    schema_changes: SchemaChanges = SchemaChanges.REJECT
    apply_as_deletes: str | None = None
    except_column_list: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, kind in (("write_mode", WriteMode), ("schema_changes", SchemaChanges)):
            object.__setattr__(self, name, _one_of(kind, name, getattr(self, name)))
        if isinstance(self.keys, str):
            raise ContractError(f"`keys` is the text {self.keys!r}", fix=f"make it a tuple: ({self.keys!r},)")
        if self.write_mode.by_key:
            if not self.keys:
                raise ContractError(
                    f"`write_mode` {self.write_mode} needs keys", fix="name at least one column in `keys`"
                )
        else:
            for name in ("keys", "nullable_keys", "sequence_by", "partition_bound"):
                if getattr(self, name):
                    raise ContractError(
                        f"`{name}` has no meaning with `write_mode` {self.write_mode}, which stores every"
                        " row of the frame",
                        fix=f"leave `{name}` out, or choose `write_mode` upsert or insert",
                    )
        self._check_changes()
        if self.partition_bound and self.delta_partition is None:
            raise ContractError(
                "`partition_bound` is set and there is no `delta_partition`",
                fix="set `delta_partition`, or unset it",
            )

    def _check_changes(self) -> None:
        if isinstance(self.except_column_list, str):
            object.__setattr__(self, "except_column_list", (self.except_column_list,))
        object.__setattr__(self, "except_column_list", tuple(self.except_column_list))
        if self.write_mode is WriteMode.APPLY_CHANGES and self.sequence_by is None:
            raise ContractError(
                "`write_mode` apply_changes needs `sequence_by`",
                fix="name the column whose higher value is the newer change",
            )
        if self.write_mode is not WriteMode.APPLY_CHANGES and self.apply_as_deletes is not None:
            raise ContractError(
                f"`write_mode` {self.write_mode} deletes no rows, and `apply_as_deletes` is set",
                fix="choose `write_mode` apply_changes",
            )
        if needed := [name for name in self.named if name in self.except_column_list]:
            raise ContractError(
                f"the column {needed[0]} is needed in the table, and stands in `except_column_list`",
                fix="take it out of `except_column_list`",
            )

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that the spec names."""
        return tuple(filter(None, (*self.keys, self.sequence_by, self.delta_partition)))

    @property
    def upsert(self) -> UpsertSpec | None:
        """The merge of an upsert or insert; None for the other modes."""
        if not self.write_mode.by_key:
            return None
        return UpsertSpec(
            merge_key=self.keys,
            ordering=self.sequence_by,
            delta_partition=self.delta_partition,
            partition_bound=self.partition_bound,
            insert_only=self.write_mode is WriteMode.INSERT,
            nullable_keys=self.nullable_keys,
            deleted_by=IS_DELETED if self.write_mode is WriteMode.APPLY_CHANGES else None,
        )

    def to_metadata(self) -> dict[str, Any]:
        """Return the spec as asset metadata, from which `DeltaUpsertIOManager` reads it."""
        fields: dict[str, Any] = {"write_mode": str(self.write_mode)}
        if self.keys:
            fields["keys"] = list(self.keys)
        fields |= {
            name: value
            for name in (
                "nullable_keys",
                "sequence_by",
                "delta_partition",
                "partition_bound",
                "columns",
                "apply_as_deletes",
            )
            if (value := getattr(self, name))
        }
        if self.except_column_list:
            fields["except_column_list"] = list(self.except_column_list)
        if self.schema_changes is not SchemaChanges.REJECT:
            fields["schema_changes"] = str(self.schema_changes)
        return {METADATA_PREFIX + name: value for name, value in fields.items()}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], *, asset: str) -> WriteSpec:
        """Read the spec from asset metadata, by `to_metadata`, `UpsertSpec.to_metadata` or by hand.

        `keys` may be a name or a list of names. `merge_key`, `ordering` and `insert_only` are earlier names
        of `keys`, `sequence_by` and of the write mode insert; `partition_expr` is Dagster's name of
        `delta_partition`.

        Raises:
            ContractError: a name is not a field, two fields contradict each other, or a value is not valid.
                Carries `asset`.
        """
        try:
            return cls(**_fields(metadata))
        except ContractError as error:
            raise ContractError(
                f"the metadata of the asset {asset}: {error.message}", fix=error.fix, asset=asset
            ) from error


def is_declared(metadata: Mapping[str, Any]) -> bool:
    """Return whether metadata declares how an asset is written."""
    return any(name.startswith(METADATA_PREFIX) for name in metadata)


def _fields(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that metadata gives, by their current names."""
    told = {
        key.removeprefix(METADATA_PREFIX): _plain(value)
        for key, value in metadata.items()
        if key.startswith(METADATA_PREFIX)
    }
    known = {*WriteSpec.__dataclass_fields__, *_ALIASES, "insert_only"}
    if unknown := sorted(told.keys() - known):
        near = difflib.get_close_matches(unknown[0], known, n=1)
        names = ", ".join(METADATA_PREFIX + name for name in sorted(WriteSpec.__dataclass_fields__))
        raise ContractError(
            f"unknown names {', '.join(METADATA_PREFIX + name for name in unknown)}",
            fix=(f"did you mean {METADATA_PREFIX}{near[0]}? " if near else "") + f"use {names}",
        )
    fields: dict[str, Any] = {}
    for name, value in told.items():
        if name != "insert_only":
            _put(fields, _ALIASES.get(name, name), value, said=METADATA_PREFIX + name)
        elif value:
            _put(fields, "write_mode", "insert", said=METADATA_PREFIX + name)
    if PARTITION_EXPR in metadata:
        _put(fields, "delta_partition", _column(_plain(metadata[PARTITION_EXPR])), said=PARTITION_EXPR)
    if not fields.get("keys") and _one_of(WriteMode, "write_mode", fields.get("write_mode", "upsert")).by_key:
        raise ContractError(
            "it has no keys",
            fix=f'add metadata={{"{METADATA_PREFIX}keys": ["column", ...]}} or'
            " **WriteSpec(...).to_metadata(); without keys"
            f' rows can be appended or replaced: {{"{METADATA_PREFIX}write_mode": "append"}}',
        )
    keys = fields.get("keys", ())
    return fields | {"keys": (keys,) if isinstance(keys, str) else tuple(keys)}


def _put(fields: dict[str, Any], name: str, value: Any, *, said: str) -> None:
    if fields.setdefault(name, value) != value:
        raise ContractError(
            f"`{name}` is {fields[name]!r}, and {said} says {value!r}", fix="leave one of them out"
        )


def _plain(value: Any) -> Any:
    """Return the value inside one of Dagster's metadata values."""
    return getattr(value, "value", value)


def _column(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ContractError(
        f"`{PARTITION_EXPR}` is {value!r}, and the partitions of an asset are told apart by one column",
        fix="store the whole partition key (context.partition_key, `2026-01-31|eu`) in a STRING column and"
        " name that",
    )


def _one_of(kind: type[_Kind], name: str, value: str) -> _Kind:
    try:
        return kind(value)
    except ValueError as error:
        raise ContractError(
            f"`{name}` is {value!r}", fix=f"use one of {', '.join(kind)}", found=value
        ) from error
