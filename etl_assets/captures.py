"""Captures of an installation: discovery, states and rollback, as commands, the worker and REST use them.

Belongs here: what joins the control store, the catalog of pipelines and a capture. Does not belong here:
reading the log (`sources/captures/`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from etl_assets.delta.log.durability import write_durably
from etl_assets.errors import (
    EtlAssetsError,
    SourceRefused,
    SourceUnavailable,
    StorageFailed,
    TransitionRefused,
)
from etl_assets.pipelines.capture_files import find_capture, read_captures, usable_captures
from etl_assets.pipelines.captured_declarations import captured_declaration, captured_path
from etl_assets.pipelines.origin import DeclarationOrigin
from etl_assets.sources.captures.connect import capture_reader, table_states
from etl_assets.sources.captures.discovery import Discovery, FoundTables
from etl_assets.sources.captures.table_retries import TableRetry
from etl_assets.sources.captures.table_states import CapturedTableState, change_state, find_state
from etl_assets.sources.captures.table_view import TableView, lag_seconds

if TYPE_CHECKING:
    from etl_assets.settings import Settings
    from etl_assets.sources.captures.log_reader import CaptureReader

logger = logging.getLogger(__name__)


def discover(settings: Settings, name: str) -> FoundTables:
    """Take up the tables of a capture, and let definitions have their pipelines.

    Raises:
        NotFound, PipelinesBroken: there is no such capture, or it cannot be used.
        SourceUnavailable, SourceRefused: as `Discovery.run` says.
        ControlStoreUnavailable: the control store does not answer.
        StorageFailed: the declarations cannot be written.
    """
    reader = capture_reader(settings, find_capture(settings.home, name))
    found = Discovery(
        reader=reader,
        own_tables=own_tables(),
        problem=lambda content: _problem(settings, content),
    ).run()
    write_declarations(settings)
    return found


def write_declarations(settings: Settings) -> bool:
    """Write the declarations of all captured tables where definitions are loaded from.

    A table that left keeps its pipeline, so that its destination stays in the catalog as it is. So do the
    tables of a capture whose file cannot be used now.
    """
    states = table_states(settings)
    found = [
        each.declaration
        for name in sorted({each.name for each in read_captures(settings.home)})
        for each in states.of_capture(name)
        if each.declaration
    ]
    return write_captured(settings.home, found)


def own_tables() -> frozenset[str]:
    """Return the names of the platform's own tables in PostgreSQL."""
    from etl_assets.control.schema import METADATA, VERSION_TABLE
    from etl_assets.pipelines.sink_specs.postgres import POSITIONS

    return frozenset({POSITIONS, VERSION_TABLE, *METADATA.tables})


def states_of(settings: Settings, name: str | None = None) -> Iterator[CapturedTableState]:
    """Yield the states of a capture's tables, or of those of all captures."""
    names = (
        sorted(usable_captures(settings.home)) if name is None else [find_capture(settings.home, name).name]
    )
    states = table_states(settings)
    for each in names:
        yield from states.of_capture(each)


def table_views(
    settings: Settings,
    name: str | None = None,
    *,
    asks: bool = True,
    pipelines: Collection[str] | None = None,
) -> Iterator[TableView]:
    """Yield the tables of a capture, or of all captures, as people see them.

    Args:
        settings: The platform file.
        name: The capture.
        asks: Whether to ask each server how long its log is. One that does not answer leaves it unknown. If
            not, the lag in bytes is that of the last look at the log.
        pipelines: Names of the tables' pipelines; None: all.
    """
    names = sorted(usable_captures(settings.home)) if name is None else [name]
    for each in names:
        reader = capture_reader(settings, find_capture(settings.home, each))
        end_lsn, spool = reader.end_lsn() if asks else None, reader.spool.state()
        seen_lsn = end_lsn if asks or spool is None else max(spool.seen_lsn, spool.end_lsn)
        for state in reader.states.of_capture(each):
            if pipelines is not None and state.pipeline not in pipelines:
                continue
            committed = state.released_lsn if spool is None else reader.committed_lsn(state, spool)
            yield TableView(
                state=state,
                committed_lsn=committed,
                lag_bytes=None if seen_lsn is None else max(0, seen_lsn - committed),
                lag_seconds=None
                if spool is None
                else lag_seconds(reader.spool, state, committed, spool, end_lsn),
            )


def captured_tables(settings: Settings, pipelines: Collection[str] | None = None) -> dict[str, TableView]:
    """Return the tables of captures by the names of their pipelines, all or some. No server is asked.

    Tables without a pipeline are left out, such as those whose name another pipeline has. So are those of a
    capture that cannot be read now, which is logged: others are shown without them.
    """
    own = {
        each.name
        for each in settings.installed().files
        if each.origin is DeclarationOrigin.CAPTURE and each.spec is not None
    }
    wanted = own if pipelines is None else own.intersection(pipelines)
    found: dict[str, TableView] = {}
    for name in sorted(usable_captures(settings.home)) if wanted else ():
        try:
            views = list(table_views(settings, name, asks=False, pipelines=wanted))
        except (EtlAssetsError, OSError, ValueError) as error:
            logger.warning("the tables of the capture %s cannot be shown now: %s", name, error)
        else:
            found |= {view.state.pipeline: view for view in views}
    return found


def roll_back(settings: Settings, name: str, table: str, *, copies: bool = False) -> CapturedTableState:
    """Let a table in error go on from the phase before, or copy a table again.

    Raises:
        NotFound: there is no such capture or table.
        TransitionRefused: it is not in error, or changes are missing, so that it can only be copied again.
    """
    reader = capture_reader(settings, find_capture(settings.home, name))
    if copies:
        return _copy_again(settings, reader, table)
    with reader.alone(), closing(reader):
        state = find_state(reader.states, name, table)
        if state.error is None:
            raise TransitionRefused(
                f"{state.table} is not in error: it is {state.phase}",
                fix="nothing needs to be done; to copy the table again: --copy",
                pipeline=state.pipeline,
            )
        if state.error.needs_copy:
            raise TransitionRefused(
                f"{state.table} cannot go on from {state.error.before}: changes of it are missing."
                f" {state.error.reason}",
                fix=f"{state.error.solution}; then `etl-assets cdc rollback {name} {state.table} --copy`",
                pipeline=state.pipeline,
            )
        return change_state(reader.states, name, state.table, lambda each: each.rolled_back())


def _copy_again(settings: Settings, reader: CaptureReader, table: str) -> CapturedTableState:
    """Let a table be copied again, with its columns as they are."""
    name = reader.capture.name
    with reader.alone(), closing(reader):
        state = find_state(reader.states, name, table)
        spool = reader.spool.state()
        since = 0 if spool is None else spool.end_lsn
        # The state comes first: a table whose changes are gone must never look as if it had them all.
        change_state(
            reader.states,
            name,
            state.table,
            lambda each: replace(each.copied_again(since), source_columns=()),
        )
        reader.spool.remove(state.pipeline, until_lsn=since)
        with suppress(SourceUnavailable, SourceRefused):  # another discovery comes before the copy
            discover(settings, name)
        return find_state(reader.states, name, table)


def retry_errored(settings: Settings, name: str) -> list[CapturedTableState]:
    """Let all tables in error go on that can without another copy, as after one cause is corrected for all.

    A discovery comes first: it ends the errors that it found itself.

    Returns:
        The tables that were in error, as they are now; those still in error have to be corrected or copied.

    Raises:
        NotFound, SourceUnavailable, SourceRefused: as `discover` says.
    """
    before = [each.table for each in states_of(settings, name) if each.error is not None]
    discover(settings, name)
    found = []
    for table in before:
        state = find_state(table_states(settings), name, table)
        is_left = state.error is not None and state.error.retry is TableRetry.MANUAL
        if is_left or state.attempts is not None:
            state = roll_back(settings, name, table)
        found.append(state)
    return found


def _problem(settings: Settings, content: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what is wrong with a generated declaration among all others of the installation."""
    from etl_assets.installed import built_in_catalog
    from etl_assets.pipelines.cross_checks import checked

    base = built_in_catalog(settings.pipelines.built_in, settings.connection_rights)
    others = [each for each in settings.installed().files if each.name != content["name"]]
    mine = captured_declaration(content)
    same = [
        each
        for each in settings.installed().files
        if each.name == content["name"] and each.origin != mine.origin
    ]
    *_, found = checked([*others, *same, mine], base, settings.connection_rights)
    if not found.problems:
        return None
    first = found.problems[0]
    return f"{first.field}: {first.message}", first.fix


def write_captured(home: Path, declarations: Iterable[Mapping[str, Any]]) -> bool:
    """Write the generated declarations of all captures, and return whether they have changed.

    Raises:
        StorageFailed: the file cannot be written; it stays as it was.
    """
    path = captured_path(home)
    content = orjson.dumps({"pipelines": list(declarations)}, option=orjson.OPT_INDENT_2) + b"\n"
    try:
        if path.exists() and path.read_bytes() == content:
            return False
        write_durably(path, content)
    except OSError as error:
        raise StorageFailed(
            f"{path} cannot be written: {error.strerror or error}",
            fix="make room or give the right to write it; the next discovery tries again",
        ) from error
    return True
