"""Opening a DuckDB file: only below allowed folders, with errors that say what is the matter."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.errors import SinkFenced, SinkRefused, SinkUnavailable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def allowed_file(file: Path, folders: Sequence[Path]) -> Path:
    """Return the real path of a file, with every link followed.

    Raises:
        SinkRefused: the real path is not below one of the folders, or cannot be a database file.
    """
    real = file.expanduser().resolve()
    below = [folder for folder in folders if real.is_relative_to(folder.expanduser().resolve())]
    if not below:
        raise SinkRefused(
            f"duckdb: {file} is not below an allowed folder",
            fix=f"choose a file below {', '.join(map(str, folders)) or 'an allowed folder'}",
            sink=str(file),
        )
    if real.is_dir() or not real.parent.is_dir():
        raise SinkRefused(
            f"duckdb: {real} is a folder" if real.is_dir() else f"duckdb: there is no folder {real.parent}",
            fix="create the folder, or correct the path of the file",
            sink=str(real),
        )
    return real


def opened(file: Path, *, memory_limit: str, threads: int) -> DuckDBPyConnection:
    """Open or create a database file for writing. The process holds DuckDB's lock on it until it is closed.

    Raises:
        SinkUnavailable: another process has the file open, or the disk refuses.
        SinkRefused: the file is no DuckDB database, or the package is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise SinkRefused(
            "duckdb: the package duckdb is not installed",
            fix="pip install 'etl-assets[duckdb]'",
            sink=str(file),
        ) from error
    with naming(file):
        return duckdb.connect(
            str(file),
            config={
                "memory_limit": memory_limit,
                "threads": threads,
                "preserve_insertion_order": False,
                "autoinstall_known_extensions": False,
            },
        )


@contextmanager
def naming(file: Path) -> Generator[None]:
    """Turn DuckDB's errors into those of a sink. Messages hold no values of rows."""
    import duckdb

    try:
        yield
    except duckdb.TransactionException as error:
        raise SinkFenced(
            f"duckdb://{file}: another connection has moved the position",
            fix="repeat the step",
            sink=str(file),
        ) from error
    except (duckdb.IOException, duckdb.OutOfMemoryException, duckdb.ConnectionException) as error:
        raise _unavailable(file, error) from error
    except duckdb.Error as error:
        raise SinkRefused(
            f"duckdb://{file}: DuckDB refuses the delivery ({type(error).__name__}: {_first_line(error)})",
            fix="compare the table in the file with the columns of the pipeline's table",
            sink=str(file),
        ) from error


def _unavailable(file: Path, error: Any) -> SinkUnavailable | SinkRefused:
    text = str(error)
    if "not a valid DuckDB database" in text:
        return SinkRefused(f"duckdb: {file} is no DuckDB database", fix="choose another file", sink=str(file))
    if "lock" in text and "Could not set" in text:
        return SinkUnavailable(
            f"duckdb: another process has {file} open",
            fix="close it there: DuckDB lets one process open a file to write; readers may open a copy",
            sink=str(file),
        )
    return SinkUnavailable(
        f"duckdb://{file}: {type(error).__name__}: {_first_line(error)}",
        fix="see that the disk is writable and not full, and that memory_limit suffices",
        sink=str(file),
    )


def _first_line(error: Any) -> str:
    return str(error).splitlines()[0][:200]
