"""Messages of `pgoutput`, the output plugin of PostgreSQL's logical replication, as frozen values.

A message for each row is a named tuple, which takes a third of the time of a frozen dataclass to make.

Belongs here: one class for each kind of message of the protocol versions 1 and 2, named as in the chapter
"Logical Replication Message Formats" of PostgreSQL's manual. Does not belong here: bytes (`decoder.py`), and
what a value's text means (`values.py`).

Integers are LSNs where a name ends with `lsn`; times are microseconds since 2000-01-01T00:00:00Z, as
PostgreSQL counts them. `xid` of a message within a streamed transaction is the number of its subtransaction,
and None outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple


class Unchanged(Enum):
    """The one value of a column that was not sent, because the change left its TOAST value as it was."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED

Value = bytes | None | Unchanged
"""A column's value: its text in UTF-8, null, or `UNCHANGED`."""
Values = tuple[Value, ...]
"""The values of a row, in the order of the relation's columns."""


@dataclass(frozen=True, slots=True)
class BeginMessage:
    """B: a transaction begins. All until its commit belongs to it."""

    commit_lsn: int
    committed_at: int
    xid: int


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """C: a transaction ends. `end_lsn` is the place after it, from which a reader goes on."""

    commit_lsn: int
    end_lsn: int
    committed_at: int


@dataclass(frozen=True, slots=True)
class OriginMessage:
    """O: the transaction was replicated to this server from another one."""

    commit_lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a relation.

    Attributes:
        name: Its name.
        type_oid: OID of its type, which for a domain is the domain's.
        type_modifier: Length, precision and the like, as the type defines it; -1 for none.
        is_key: Whether it is a part of the replica identity.
    """

    name: str
    type_oid: int
    type_modifier: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class RelationMessage:
    """R: the columns of a table, sent before its first change and again after they changed.

    `replica_identity` is `d` (primary key), `n` (nothing), `f` (full) or `i` (an index).
    """

    xid: int | None
    oid: int
    schema: str
    name: str
    replica_identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class TypeMessage:
    """Y: a type that is not built in. Of a domain, schema and name are those of its base type."""

    xid: int | None
    oid: int
    schema: str
    name: str


class InsertMessage(NamedTuple):
    """I: a new row."""

    xid: int | None
    relation: int
    new: Values


class UpdateMessage(NamedTuple):
    """U: a changed row.

    Attributes:
        xid: See above.
        relation: OID of the table.
        new: The row as it is now.
        old: The row before, if the replica identity is full or the key has changed; otherwise None.
        old_is_key: Whether `old` has the values of the key only; the others are null in it.
    """

    xid: int | None
    relation: int
    new: Values
    old: Values | None = None
    old_is_key: bool = False


class DeleteMessage(NamedTuple):
    """D: a row that is gone; `old` and `old_is_key` are as in an update."""

    xid: int | None
    relation: int
    old: Values
    old_is_key: bool


@dataclass(frozen=True, slots=True)
class TruncateMessage:
    """T: tables that were emptied."""

    xid: int | None
    relations: tuple[int, ...]
    cascades: bool
    restarts_identity: bool


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """M: what `pg_logical_emit_message` wrote into the log."""

    xid: int | None
    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes


@dataclass(frozen=True, slots=True)
class StreamStart:
    """S: a part of a transaction that is still in progress begins. All until `StreamStop` belongs to it."""

    xid: int
    is_first: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    """E: the part ends. Parts of other transactions, and whole transactions, may follow."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """c: a streamed transaction is committed."""

    xid: int
    commit_lsn: int
    end_lsn: int
    committed_at: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """A: a streamed transaction, or one of its subtransactions, is rolled back. Equal numbers mean all."""

    xid: int
    subtransaction: int


Change = InsertMessage | UpdateMessage | DeleteMessage | TruncateMessage
"""A message about rows of a table."""
Message = (
    BeginMessage
    | CommitMessage
    | OriginMessage
    | RelationMessage
    | TypeMessage
    | InsertMessage
    | UpdateMessage
    | DeleteMessage
    | TruncateMessage
    | LogicalMessage
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
)
