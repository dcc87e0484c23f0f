"""The interface of a sink: a target outside the platform that follows one table.

Belongs here: what every sink can do, what it is given, and what its guarantees mean. Does not belong here:
the targets themselves (one folder each), and which rows are delivered when (`steps/deliver.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from etl_assets.sinks.position import SinkPosition

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.contracts.columns import TableContract


class Guarantee(StrEnum):
    """What a target has after any number of kills, repeats and concurrent writers.

    EXACTLY_ONCE: each delivery once. The target commits the position together with the rows, and only if its
        position is still the one that the delivery begins at. A writer that was paused and wakes up later
        changes nothing.
    BY_KEY: each key as its newest delivery has it. A delivery may be repeated, and an older one that arrives
        late has no effect: the target compares versions for each key.
    AT_LEAST_ONCE: each row once or, after a kill, more often. Such a sink gets `Delivery.progress`, and a
        delivery that was interrupted is continued as it was planned.
    """

    EXACTLY_ONCE = "exactly_once"
    BY_KEY = "by_key"
    AT_LEAST_ONCE = "at_least_once"


class DeliveryProgress(Protocol):
    """What a sink has done of a delivery, kept in every failure domain until the delivery is recorded.

    One process at a time may go on with a delivery. Another one takes over once this one is certainly gone,
    is fenced, or has saved nothing for a while.
    """

    def load(self) -> Mapping[str, Any] | None:
        """Return what was saved last, also by another process; None at the beginning."""
        ...

    def save(self, progress: Mapping[str, Any]) -> None:
        """Save the progress, as values that JSON has, and renew the claim on the delivery.

        Raises:
            EffectTakenOver: another process has taken the delivery over.
        """
        ...

    def is_due(self) -> bool:
        """Return whether it is time to save, so that no other process takes over."""
        ...

    def is_current(self) -> bool:
        """Return whether no other process can have taken over yet. Safe to use from several threads."""
        ...


def _nothing() -> None:
    pass


def _none_known(rows: pa.RecordBatch) -> Sequence[bool]:
    return [False] * rows.num_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One step of a target from one position to the next.

    Attributes:
        before: The position that the target must have, None for a target that has nothing yet.
        after: The position that it has afterwards. Its version only rises, also where an undo brings old rows
            back, so it serves as the version of every row and delete of the delivery.
        whole: Whether the rows are all rows of the table: the target removes every other key.
        rows: Yields new and changed rows, with the contract's columns, at most one for each key. Each call
            reads them from the beginning. Batches have a bounded size.
        deleted: Yields the keys of deleted rows, with the key columns. None of them is among the rows.
        reject: Takes rows that the target does not accept, durably, before the delivery counts. The rows that
            are left out are delivered.
        number: Rises with each delivery of the sink, and stays when one is continued.
        was_there: Returns for some rows which of their keys had a row at `before`.
        progress: What was done of it, for a sink whose guarantee is `at_least_once`. Rows and deleted keys
            then come in the same order each time.
        expect_current: Raises `LeaseLost` if the runner was superseded. Called as late as the target allows:
            before its commit, or before each of its calls.
    """

    before: SinkPosition | None
    after: SinkPosition
    whole: bool
    rows: Callable[[], Iterator[pa.RecordBatch]]
    deleted: Callable[[], Iterator[pa.RecordBatch]]
    reject: Callable[[list[Rejection]], None]
    number: int = 0
    was_there: Callable[[pa.RecordBatch], Sequence[bool]] = _none_known
    progress: DeliveryProgress | None = None
    expect_current: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A row that a target does not accept.

    Attributes:
        keys: Its keys as JSON, an object from column to value.
        row: The row as JSON.
        reason: One of `contracts.reasons.DeadLetterReason`.
        error: The target's words, without values of other rows.
    """

    keys: str
    row: str
    reason: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """Figures of a delivery that the target has.

    Attributes:
        written: Rows that were written, new or changed.
        unchanged: Rows that the target had already, or newer.
        deleted: Rows that were removed.
        rejected: Rows that it did not accept.
        notes: What the target could not do, for people.
    """

    written: int = 0
    unchanged: int = 0
    deleted: int = 0
    rejected: int = 0
    notes: tuple[str, ...] = ()


class Sink(Protocol):
    """A target that follows one table. Opened for one step, in one thread; closed by its caller.

    Raises, from every call:
        SinkUnavailable: the target does not answer, or not now. Nothing is known of the call's effect, and
            the step is repeated.
        SinkRefused: the target can never accept this: a table of another shape, a missing privilege, a
            target that is not on the list of allowed ones. Names the target, and the fix.
    """

    @property
    def guarantee(self) -> Guarantee:
        """What the target has after kills, repeats and concurrent writers."""
        ...

    @property
    def keeps_position(self) -> bool:
        """Whether the target keeps the position. Otherwise the commit of the delivery's record does."""
        ...

    @property
    def applies_deletes(self) -> bool:
        """Whether rows can be removed from the target. Otherwise an undo names it as not undone."""
        ...

    @property
    def target(self) -> str:
        """The target for people, without secrets: `postgres://host:5432/db/schema.table`."""
        ...

    def prepare(self, contract: TableContract) -> None:
        """Create the target for the columns of a table, or add and widen columns. Safe to repeat."""
        ...

    def position(self) -> SinkPosition | None:
        """Return the target's position; None if it has nothing, or does not keep it."""
        ...

    def deliver(self, delivery: Delivery) -> Delivered:
        """Bring the target to a delivery's position.

        Raises:
            SinkFenced: the target's position is not the one that the delivery begins at, because another
                writer has moved it, or a runner with a higher token has begun. Nothing was written.
            LeaseLost: `expect_current` says so. Nothing was committed.
        """
        ...

    def close(self) -> None:
        """Let go of connections. Never raises."""
        ...
