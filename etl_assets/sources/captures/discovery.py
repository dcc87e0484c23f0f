"""Which tables a capture follows, by the server's catalog, and the declaration of each one's pipeline.

Belongs here: one discovery. Does not belong here: reading the log (`log_reader.py`), and the file that
definitions are loaded from (`pipelines/captured_declarations.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from etl_assets.errors import SourceRefused
from etl_assets.pipelines.capture_spec import AddedColumns, CaptureSpec
from etl_assets.sources.captures.catalog_mark import read_catalog_mark
from etl_assets.sources.captures.followed_columns import followed_declaration
from etl_assets.sources.captures.log_reader import CaptureReader
from etl_assets.sources.captures.matched_tables import (
    find_keys,
    find_matched,
    is_made_here,
    publication_mark,
)
from etl_assets.sources.captures.phases import TablePhase
from etl_assets.sources.captures.table_declaration import table_declaration
from etl_assets.sources.captures.table_retries import FoundBy, TableRetry
from etl_assets.sources.captures.table_states import CapturedTableState, StateChange, change_state
from etl_assets.sources.postgres_cdc.column_changes import column_marks
from etl_assets.sources.postgres_cdc.membership import may_lack_changes, read_membership
from etl_assets.sources.postgres_cdc.partitions import read_partitions
from etl_assets.sources.postgres_cdc.server_state import PublicationState, read_publication_state
from etl_assets.sources.postgres_cdc.source_table import find_source_table
from etl_assets.sources.postgres_cdc.type_catalog import read_types
from etl_assets.sources.sql.postgres_text import quoted

if TYPE_CHECKING:
    import psycopg

Problem = Callable[[Mapping[str, Any]], tuple[str, str] | None]
"""Returns what is wrong with a generated declaration among all others, and the fix; None if nothing is."""


_DESCRIBED_AGAIN = 20
"""After so many discoveries without a change of the catalog the tables are described anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTables:
    """What a discovery found.

    Attributes:
        added: Tables that were taken up, by name.
        changed: Tables with other columns or keys than before.
        left: Tables that are no longer followed.
        errored: Tables that cannot be followed.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    errored: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Discovery:
    """Compares the server's catalog with the states of a capture's tables.

    Attributes:
        reader: The reader of the capture.
        own_tables: Names of the platform's own tables, which a capture must not follow.
        problem: What is wrong with a declaration.
    """

    reader: CaptureReader
    own_tables: frozenset[str]
    problem: Problem

    def run(self) -> FoundTables:
        """Take up new tables, changed ones, and those that left.

        Raises:
            SourceUnavailable: the server does not answer.
            SourceRefused: the publication is missing and cannot be made, or has tables of the platform
            itself.
        """
        with self.reader.alone(), self.reader.server.asked():
            session = self.reader.server.session
            capture = self.reader.capture
            mark = read_catalog_mark(session)
            if self._is_unchanged(mark):
                return FoundTables()
            matched = find_matched(session, capture)
            self._expect_foreign(matched)
            known = {each.table: each for each in self.reader.states.of_capture(capture.name)}
            published = self._publication(session, matched, known)
            # What was just made for the publication is no change that the next discovery has to look at.
            # Tables that others make meanwhile are matched after the mark is read.
            mark = read_catalog_mark(session)
            matched = find_matched(session, capture)
            self._expect_foreign(matched)
            wanted = {name: oid for name, oid in matched.items() if _quoted(name) in published}
            spool = self.reader.spool.state()
            since = 0 if spool is None else spool.end_lsn
            found: dict[str, list[str]] = {"added": [], "changed": [], "left": [], "errored": []}
            for name, oid in wanted.items():
                kind = self._take_up(session, name, oid, known.get(name), since)
                if kind:
                    found[kind].append(name)
            for name, state in known.items():
                if name not in wanted and state.phase is not TablePhase.LEFT:
                    self._change(state, lambda each: each.to(TablePhase.LEFT))
                    self.reader.spool.remove(state.pipeline, until_lsn=1 << 64)
                    found["left"].append(name)
            self.reader.described = (mark, _DESCRIBED_AGAIN)
        return FoundTables(**{name: tuple(tables) for name, tables in found.items()})

    def _is_unchanged(self, mark: str) -> bool:
        """Return whether nothing has changed that a discovery looks at, so that it would find nothing.

        Errors may end without a change of the catalog, and so may rights: the tables are then described.
        So are those that an operator has copied again: the copy takes columns that were not followed.
        """
        if self.reader.described is None:
            return False
        before, times = self.reader.described
        self.reader.described = (before, times - 1)
        if before != mark or not times:
            return False
        states = self.reader.states.of_capture(self.reader.capture.name)
        return bool(states) and all(each.error is None and each.source_columns != () for each in states)

    def _expect_foreign(self, matched: Mapping[str, int]) -> None:
        if own := sorted(each for each in matched if each.partition(".")[2] in self.own_tables):
            raise SourceRefused(
                f"the capture {self.reader.capture.name} matches {own[0]}, a table of the platform"
                f" itself: each"
                " commit would be a change that is committed again",
                fix=f"add it to `exclude` of the capture: {', '.join(own)}",
                source=self.reader.capture.connection,
            )

    def _publication(
        self, session: psycopg.Connection, matched: Mapping[str, int], known: Mapping[str, CapturedTableState]
    ) -> frozenset[str]:
        """Return the published tables, quoted. Make the publication, or add new tables to one made here."""
        capture = self.reader.capture
        found = read_publication_state(session, capture.publication)
        name = quoted(capture.publication)
        if found is None:
            if not matched:
                raise SourceRefused(
                    f"no table of {self.reader.server.name} is matched by the capture {capture.name}",
                    fix=f"correct `tables`: {', '.join(capture.tables)}",
                    source=self.reader.server.name,
                )
            listed = ", ".join(map(_quoted, matched))
            with session.transaction():
                session.execute(
                    f"CREATE PUBLICATION {name} FOR TABLE {listed}"
                    " WITH (publish_via_partition_root = true)".encode()
                )
                session.execute(f"COMMENT ON PUBLICATION {name} IS '{publication_mark(capture)}'".encode())
        else:
            self._expect_no_own_tables(found)
            there = {_requoted(each.name) for each in found.tables}
            new = [
                each
                for each, oid in matched.items()
                if (each not in known or known[each].oid != oid) and _quoted(each) not in there
            ]
            if is_made_here(session, capture):
                for each in new:
                    session.execute(f"ALTER PUBLICATION {name} ADD TABLE {_quoted(each)}".encode())
        found = read_publication_state(session, capture.publication)
        assert found is not None  # it is there, or was made
        return frozenset(_requoted(each.name) for each in found.tables)

    def _expect_no_own_tables(self, found: PublicationState) -> None:
        names = [each.name for each in found.tables]
        if own := sorted(each for each in names if each.rpartition(".")[2].strip('"') in self.own_tables):
            raise SourceRefused(
                f"the publication {found.name} has {own[0]}, a table of the platform itself: each"
                f" commit would be"
                " a change that is committed again",
                fix="make a publication FOR TABLE with the tables that are read"
                if found.has_all_tables
                else f"ALTER PUBLICATION {quoted(found.name)} DROP TABLE {', '.join(own)}",
                source=self.reader.capture.connection,
            )

    def _take_up(
        self, session: psycopg.Connection, name: str, oid: int, before: CapturedTableState | None, since: int
    ) -> str:
        """Compare a table with its state, store the difference, and return what kind it is."""
        capture = self.reader.capture
        state = before or CapturedTableState(
            capture=capture.name,
            table=name,
            pipeline=capture.pipeline_of(name),
            oid=oid,
            since_lsn=since,
            released_lsn=since,
        )
        try:
            described = self._described(session, capture, replace(state, oid=oid))
        except SourceRefused as error:
            if state.error is not None and state.error.reason == error.message:
                return ""
            # The OID stays: once the table can be followed, another table is copied.
            self._store(before, state.failed_by(error, FoundBy.DISCOVERY, time.time()))
            return "errored"
        partitions = read_partitions(session, _quoted(name))
        membership = read_membership(session, capture.publication, _quoted(name))
        after = replace(described, partitions=partitions.marks, membership=membership)
        if before is None:
            self._store(None, after)
            return "added"
        if before.phase is TablePhase.LEFT or before.oid != oid:
            self._copy_again(after, since)
            return "added"
        if before.membership is not None and may_lack_changes(before.membership, membership):
            self._copy_again(after, since)
            return "changed"
        if before.partitions is not None and partitions.moved_rows(before.partitions):
            self._copy_again(after, since)
            return "changed"
        after = _followed(before, after, capture)
        gets_columns = bool(before.declaration) and bool(after.columns - before.columns)
        if gets_columns and capture.added_columns is AddedColumns.COPY:
            # Changes since the column was added may have lost their values, and the log never had the
            # defaults of older rows.
            self._copy_again(after, since)
            return "changed"
        is_ended = before.error is not None and before.error.retry is TableRetry.TIMED
        if is_ended and before.attempts is None:
            self._store(before, after.rolled_back())
            return "added"
        self._store(before, after)
        return "" if (before.keys, before.declaration) == (after.keys, after.declaration) else "changed"

    def _described(
        self, session: psycopg.Connection, capture: CaptureSpec, state: CapturedTableState
    ) -> CapturedTableState:
        """Return the state of a table with its keys and columns, and the declaration that it has by these.

        Raises:
            SourceRefused: it cannot be followed.
        """
        keys = find_keys(session, state.oid)
        if not keys:
            raise SourceRefused(
                f"{state.table} has no primary key, and no unique index without nulls: a change does not say"
                " which row it is of",
                fix=f"ALTER TABLE {_quoted(state.table)} ADD PRIMARY KEY (...), or add it to `exclude`",
                source=state.table,
            )
        table = find_source_table(session, state.table, publication=capture.publication, keys=keys)
        types = read_types(session, [each.type_oid for each in table.relation.columns])
        declaration = table_declaration(capture, state, table, types)
        is_checked = state.error is None and declaration == state.declaration
        if not is_checked and (wrong := self.problem(declaration)) is not None:
            message, fix = wrong
            raise SourceRefused(
                f"{state.table} cannot have a pipeline: {message}", fix=fix, source=state.table
            )
        if state.declaration:
            # The table may have rows: a type never becomes narrower.
            declaration = followed_declaration(state.declaration, declaration, None)
            assert declaration is not None  # without a policy every change is followed
        marks = column_marks(table.relation.columns)
        return replace(state, keys=table.keys, declaration=declaration, source_columns=marks)

    def _change(self, state: CapturedTableState, change: StateChange) -> None:
        change_state(self.reader.states, state.capture, state.table, change)

    def _copy_again(self, found: CapturedTableState, since: int) -> None:
        """Let a table be copied as it was found, whatever progress its step makes meanwhile.

        The state comes first: a table whose changes are gone must never look as if it had them all.
        """

        def change(each: CapturedTableState) -> CapturedTableState:
            described = replace(
                each,
                keys=found.keys,
                declaration=found.declaration,
                oid=found.oid,
                partitions=found.partitions,
                membership=found.membership,
                source_columns=found.source_columns,
            )
            return described.copied_again(since)

        self._change(found, change)
        self.reader.spool.remove(found.pipeline, until_lsn=since)

    def _store(self, before: CapturedTableState | None, after: CapturedTableState) -> None:
        """Store a new state, or one in place of another, unless its phase was changed meanwhile."""
        if before is None:
            self.reader.states.put(replace(after, version=1))
            return

        def change(each: CapturedTableState) -> CapturedTableState:
            if each.version != before.version:
                # Progress of a step: keep it, and take what discovery says of the table.
                return replace(
                    each,
                    keys=after.keys,
                    declaration=after.declaration,
                    partitions=after.partitions,
                    membership=after.membership,
                    source_columns=after.source_columns,
                )
            return replace(after, version=each.version)

        self._change(before, change)


def _followed(
    before: CapturedTableState, after: CapturedTableState, capture: CaptureSpec
) -> CapturedTableState:
    """Return the state of a table with its columns as the policy of the capture follows them."""
    if not before.was_read or not before.declaration:
        return after
    found = followed_declaration(before.declaration, after.declaration, capture.schema_changes)
    if found is not None:
        return replace(after, declaration=found)
    # The table's step says so where the changes are, or makes dead letters of them.
    return replace(
        after, keys=before.keys, declaration=before.declaration, source_columns=before.source_columns
    )


def _quoted(name: str) -> str:
    return ".".join(quoted(part) for part in name.split(".", 1))


def _requoted(name: str) -> str:
    """Return a name that `quote_ident` wrote with quotes around both parts."""
    parts: Sequence[str] = name.split(".") if '"' not in name else _parts(name)
    return ".".join(quoted(part) for part in parts)


def _parts(name: str) -> list[str]:
    """Return schema and table of a name with quotes."""
    found, part, is_quoted = [], "", False
    for each in name:
        if each == '"':
            is_quoted = not is_quoted
        elif each == "." and not is_quoted:
            found.append(part)
            part = ""
        else:
            part += each
    return [*found, part]
