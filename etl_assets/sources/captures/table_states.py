"""The states of captured tables, and the store that keeps them.

Belongs here: the value, the interface of the store, and changes by compare-and-set. Does not belong here: SQL
(`control/capture_tables.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Protocol

from etl_assets.errors import CommitConflict, NotFound
from etl_assets.sources.captures.phases import FOLLOWING, TablePhase, TableRetry
from etl_assets.sources.captures.spool import KnownSpool

_TRIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TableError:
    """Why a table is in error.

    Attributes:
        reason: What happened.
        solution: What to do.
        retry: What ends it.
        before: The phase before it.
        needs_copy: Whether changes are missing, so that only another copy helps.
    """

    reason: str
    solution: str
    retry: TableRetry
    before: TablePhase
    needs_copy: bool = False

    def ended_by(self, capture: str, table: str) -> str:
        """Return what ends the error once the solution was carried out, as a command or in words.

        Args:
            capture: The capture.
            table: The table.
        """
        if self.retry is TableRetry.TIMED:
            return f"by itself, at the next discovery; at once: etl-assets cdc discover {capture}"
        return f"etl-assets cdc rollback {capture} {table}{' --copy' if self.needs_copy else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedTableState:
    """A captured table.

    Attributes:
        capture: Name of the capture.
        table: Schema and name in the source.
        pipeline: Name of the pipeline that was generated for it.
        oid: The table's OID in the source; another one is another table.
        phase: Its phase.
        version: Number of the change of this state, for compare-and-set.
        since_lsn: The spool has the table's changes after this place in the log, as far as it was read.
        released_lsn: Changes up to here were committed, and are no longer in the spool.
        catchup_lsn: In CATCHUP: the table is complete once its changes up to here are applied.
        rows_copied: Rows of the copy that are committed.
        rows_total: The server's estimate of the table's rows when the copy began; -1: unknown.
        copies: How often another copy was asked for. A position of an earlier copy does not count.
        is_only_spooled: Whether the server was allowed to forget changes that are in the spool only.
        error: In ERRORED: why.
        keys: Columns of the source that identify a row.
        declaration: The generated declaration; empty until one could be made.
        partitions: Marks of its partitions; None: they were not looked at.
        membership: Marks of its membership in the publication; None: they were not looked at.
    """

    capture: str
    table: str
    pipeline: str
    oid: int
    phase: TablePhase = TablePhase.INIT
    version: int = 0
    since_lsn: int = 0
    released_lsn: int = 0
    catchup_lsn: int = 0
    rows_copied: int = 0
    rows_total: int = -1
    copies: int = 0
    is_only_spooled: bool = False
    error: TableError | None = None
    keys: tuple[str, ...] = ()
    declaration: Mapping[str, Any] = field(default_factory=dict)
    partitions: tuple[str, ...] | None = None
    membership: tuple[str, ...] | None = None

    @property
    def keeps_changes(self) -> bool:
        """Whether the reader keeps the table's changes: not if another copy has to come first anyway."""
        return bool(self.keys) and (self.error is None or not self.error.needs_copy)

    @property
    def was_read(self) -> bool:
        """Whether its copy has begun, so that it depends on changes of the log."""
        phase = self.phase if self.error is None else self.error.before
        return phase in (TablePhase.DATA_SYNC, TablePhase.CATCHUP, TablePhase.READY)

    def to(self, phase: TablePhase, **more: Any) -> CapturedTableState:
        """Return the state in another phase.

        Raises:
            CommitConflict: that phase cannot follow.
        """
        if phase is not self.phase and phase not in FOLLOWING[self.phase]:
            raise CommitConflict(
                f"the captured table {self.table} is in the phase {self.phase}, which {phase} cannot follow",
                fix="another process changed it meanwhile; look at `etl-assets cdc tables`, then try again",
                table=self.table,
            )
        error = more.pop("error", None)
        return replace(self, phase=phase, error=error, **more)

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns of its pipeline."""
        return frozenset(self.declaration.get("columns", ()))

    def has_columns_beside(self, known: frozenset[str]) -> bool:
        """Return whether its pipeline has columns that are not among some others."""
        return bool(self.columns - known)

    def copied_again(self, since_lsn: int) -> CapturedTableState:
        """Return the state in INIT, for a copy that begins by emptying the table.

        Args:
            since_lsn: The spool has the changes after this place.
        """
        return self.to(
            TablePhase.INIT,
            since_lsn=since_lsn,
            released_lsn=since_lsn,
            rows_copied=0,
            copies=self.copies + 1,
            is_only_spooled=False,
        )

    def failed(
        self, reason: str, solution: str, retry: TableRetry = TableRetry.MANUAL, *, needs_copy: bool = False
    ) -> CapturedTableState:
        """Return the state in error. A second error keeps the phase before the first one."""
        before = self.phase if self.error is None else self.error.before
        needs_copy = needs_copy or (self.error is not None and self.error.needs_copy)
        found = TableError(
            reason=reason, solution=solution, retry=retry, before=before, needs_copy=needs_copy
        )
        return self.to(TablePhase.ERRORED, error=found)

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return asdict(self)

    @staticmethod
    def of(found: Mapping[str, Any]) -> CapturedTableState:
        """Return the state of its JSON. What a later release has added is left out."""
        names = {each.name for each in fields(CapturedTableState)}
        given: dict[str, Any] = {name: value for name, value in found.items() if name in names}
        given |= {"phase": TablePhase(found["phase"]), "keys": tuple(found["keys"])}
        for name in ("partitions", "membership"):
            if (marks := found.get(name)) is not None:
                given[name] = tuple(marks)
        if error := dict(found["error"] or {}):
            retry, before = TableRetry(error.pop("retry")), TablePhase(error.pop("before"))
            given["error"] = TableError(**error, retry=retry, before=before)
        return CapturedTableState(**given)


StateChange = Callable[[CapturedTableState], CapturedTableState]
"""What a state becomes; the same state if nothing changes."""


class TableStates(Protocol):
    """A store of states. `testing/memory_table_states.py` is its twin in memory."""

    def of_capture(self, capture: str) -> tuple[CapturedTableState, ...]:
        """Return the tables of a capture, by name."""
        ...

    def spool(self, capture: str) -> KnownSpool | None:
        """Return the spool from which the tables of a capture are served; None: none is known."""
        ...

    def put_spool(self, capture: str, before: KnownSpool | None, spool: KnownSpool) -> bool:
        """Store a spool in the place of another one, or more about the same.

        Args:
            capture: The capture.
            before: The spool that it has, as `spool` says.
            spool: The new one.

        Returns:
            Whether it was stored: not if another process was first.
        """
        ...

    def put(self, state: CapturedTableState) -> bool:
        """Store a state whose version is one more than the stored one; 1 for a new table.

        Returns:
            Whether it was stored: not if another process was first.
        """
        ...


def find_state(states: TableStates, capture: str, table: str) -> CapturedTableState:
    """Return the state of a table.

    Raises:
        NotFound: the capture has no such table.
    """
    tables = states.of_capture(capture)
    for each in tables:
        if table in (each.table, each.pipeline):
            return each
    raise NotFound(
        f"the capture {capture} has no table {table}",
        fix=f"`etl-assets cdc discover {capture}` looks for new tables; known:"
        f" {', '.join(each.table for each in tables) or 'none'}",
        table=table,
    )


def change_state(states: TableStates, capture: str, table: str, change: StateChange) -> CapturedTableState:
    """Change the state of a table, decided again while others change it. Without a difference nothing is
    stored.

    Raises:
        NotFound: the capture has no such table.
        CommitConflict: another process always came first, or the phase does not allow it.
    """
    for _ in range(_TRIES):
        before = find_state(states, capture, table)
        after = change(before)
        if after == before:
            return before
        after = replace(after, version=before.version + 1)
        if states.put(after):
            return after
    raise CommitConflict(
        f"the state of the captured table {table} was changed by others {_TRIES} times",
        fix="run the command again",
        table=table,
    )
