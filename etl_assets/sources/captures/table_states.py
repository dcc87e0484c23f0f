"""The states of captured tables, and the store that keeps them.

Belongs here: the value, the interface of the store, and changes by compare-and-set. Does not belong here: SQL
(`control/capture_tables.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Protocol

from etl_assets.errors import CommitConflict, EtlAssetsError, NotFound
from etl_assets.sources.captures.phases import FOLLOWING, TablePhase
from etl_assets.sources.captures.spool import KnownSpool
from etl_assets.sources.captures.table_retries import Attempts, FoundBy, TableRetry, retry_of
from etl_assets.sources.postgres_cdc.transaction_parts import TransactionPart

_TRIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TableError:
    """Why a table is in error.

    Attributes:
        reason: What happened.
        solution: What to do.
        retry: What ends it.
        before: The phase before it.
        name: Name of the error.
    """

    reason: str
    solution: str
    retry: TableRetry
    before: TablePhase
    name: str = ""

    @property
    def needs_copy(self) -> bool:
        """Whether changes are missing, so that only another copy helps."""
        return self.retry is TableRetry.NONE


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
        part: How far it is within a transaction that is taken up in parts; None: it has whole ones.
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
        source_columns: Marks of the source's columns that the declaration is of; empty: the next discovery
            has to look at them, before the copy; None: they were not noted.
        attempts: Attempts in a row that failed, of an error that is tried again after a pause.
    """

    capture: str
    table: str
    pipeline: str
    oid: int
    phase: TablePhase = TablePhase.INIT
    version: int = 0
    since_lsn: int = 0
    part: TransactionPart | None = None
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
    source_columns: tuple[str, ...] | None = None
    attempts: Attempts | None = None

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

    def copied_again(self, since_lsn: int) -> CapturedTableState:
        """Return the state in INIT, for a copy that begins by emptying the table.

        Args:
            since_lsn: The spool has the changes after this place.
        """
        return self.to(
            TablePhase.INIT,
            since_lsn=since_lsn,
            released_lsn=since_lsn,
            part=None,
            rows_copied=0,
            copies=self.copies + 1,
            is_only_spooled=False,
            attempts=None,
        )

    def failed(
        self, reason: str, solution: str, retry: TableRetry = TableRetry.MANUAL, *, name: str = ""
    ) -> CapturedTableState:
        """Return the state in error. A second error keeps the phase before the first one.

        Where the first one says that changes are missing, the second one does too.
        """
        before = self.phase if self.error is None else self.error.before
        retry = TableRetry.NONE if self.error is not None and self.error.needs_copy else retry
        found = TableError(reason=reason, solution=solution, retry=retry, before=before, name=name)
        return self.to(TablePhase.ERRORED, error=found, attempts=None)

    def failed_by(self, error: EtlAssetsError, found_by: FoundBy, now: float) -> CapturedTableState:
        """Return the state after an error, with what ends it.

        Args:
            error: The error.
            found_by: What found it.
            now: The time, in seconds since 1970.
        """
        name, retry = type(error).__name__, retry_of(error, found_by)
        found = self.failed(error.message, error.fix, retry, name=name)
        assert found.error is not None
        # Every discovery is an attempt for what discovery found.
        if found.error.retry is TableRetry.TIMED and found_by is FoundBy.STEP:
            found = replace(found, attempts=Attempts.failed(self.attempts, now))
        return found

    def attempted(self, now: float) -> CapturedTableState:
        """Return the state in the phase before its error, if the next attempt is due by a time."""
        if self.error is None or self.attempts is None or now < self.attempts.next_at:
            return self
        return self.to(self.error.before)

    def rolled_back(self) -> CapturedTableState:
        """Return the state in the phase before its error."""
        return self if self.error is None else self.to(self.error.before, attempts=None)

    def holds_log(self, now: float) -> bool:
        """Return whether the server keeps its log until the table has committed its changes.

        Not for a table that waits for an operator, and for one that is tried again only for some time.
        """
        if self.attempts is not None:
            return self.attempts.holds_log(now)
        return self.error is None

    def ended_by(self) -> str:
        """Return what ends the error once the solution was carried out, as a command or in words."""
        error, attempts = self.error, self.attempts
        if error is None:
            return ""
        command = f"etl-assets cdc rollback {self.capture} {self.table}"
        match error.retry:
            case TableRetry.NONE:
                return f"{command} --copy; or leave the table out: `exclude` in the capture"
            case TableRetry.MANUAL:
                return command
            case TableRetry.TIMED if attempts is None:
                return f"by itself, at the next discovery; at once: etl-assets cdc discover {self.capture}"
            case TableRetry.TIMED:
                at = time_text(attempts.next_at)
                return f"by itself, attempt {attempts.number + 1} at {at}; at once: {command}"

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return asdict(self)

    @staticmethod
    def of(found: Mapping[str, Any]) -> CapturedTableState:
        """Return the state of its JSON. What a later release has added is left out."""
        names = {each.name for each in fields(CapturedTableState)}
        given: dict[str, Any] = {name: value for name, value in found.items() if name in names}
        given |= {"phase": TablePhase(found["phase"]), "keys": tuple(found["keys"])}
        for name in ("partitions", "membership", "source_columns"):
            if (marks := found.get(name)) is not None:
                given[name] = tuple(marks)
        if part := found.get("part"):
            given["part"] = TransactionPart(**part)
        if error := dict(found["error"] or {}):
            retry, before = TableRetry(error.pop("retry")), TablePhase(error.pop("before"))
            if error.pop("needs_copy", False):  # of an earlier release
                retry = TableRetry.NONE
            given["error"] = TableError(**error, retry=retry, before=before)
        if attempts := found.get("attempts"):
            given["attempts"] = Attempts(**attempts)
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

    def refresh(self, capture: str, *, if_doubtful: bool = False) -> None:
        """Take up what other machines have stored, for a store that has a copy of what they share.

        Until then such a store may say what was so before another machine took over. What it is asked to
        store is compared with what they share.

        Args:
            capture: The capture.
            if_doubtful: Only if a process of this home folder does not know, or died before it could say,
                whether a change was stored.
        """
        ...


def time_text(seconds: float) -> str:
    """Return a time in seconds since 1970 as ISO text, in UTC."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(timespec="seconds")


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
