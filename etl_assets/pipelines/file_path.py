"""The path of a source of files: a folder, perhaps `{day}`, and a pattern of file names, which also says the
format.

Belongs here: what a path may be, and what its parts mean. Does not belong here: files (`sources/landing.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

DAY = "{day}"
_WILDCARDS = re.compile(r"[*?\[]")
_UNFINISHED = re.compile(r"[._]|.*\.(?:tmp|part|inprogress)\Z", re.DOTALL)
_OTHER_COMPRESSION = (".zip", ".zst", ".bz2", ".xz", ".lz4", ".snappy", ".7z", ".tar", ".tgz")


class FileFormat(StrEnum):
    """Formats of files with records."""

    JSON_LINES = "json_lines"
    CSV = "csv"
    PARQUET = "parquet"


_FORMATS = {
    ".jsonl": FileFormat.JSON_LINES,
    ".ndjson": FileFormat.JSON_LINES,
    ".csv": FileFormat.CSV,
    ".tsv": FileFormat.CSV,
    ".parquet": FileFormat.PARQUET,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePath:
    """The parts of a path.

    Attributes:
        folder: The folder; relative to the home folder, or absolute.
        by_day: Whether it has a folder for each day.
        pattern: Shell pattern of the names of files.
    """

    folder: Path
    by_day: bool
    pattern: str

    @classmethod
    def of(cls, text: str) -> FilePath:
        """Return the parts of a path that has no problem."""
        path = Path(text).expanduser()
        by_day = path.parent.name == DAY
        return cls(folder=path.parent.parent if by_day else path.parent, by_day=by_day, pattern=path.name)


def format_by_name(path: str) -> FileFormat | None:
    """Return the format that the end of a path shows, in any case."""
    return _FORMATS.get(Path(_plain(path)).suffix)


def default_delimiter(path: str) -> str:
    """Return what separates two values of a CSV file with such a name."""
    return "\t" if _plain(path).endswith(".tsv") else ","


def _plain(path: str) -> str:
    return path.lower().removesuffix(".gz")


def path_problem(text: str) -> str:
    """Return what is wrong with a path, and the fix after a semicolon; an empty text if it may be used.

    Shows no part of the path: it may come from an environment variable.
    """
    *folders, name = text.split("/")
    problem = _problem_of_folders(folders, text) or _problem_of_name(name)
    return problem


def _problem_of_folders(folders: list[str], text: str) -> str:
    days = [index for index, part in enumerate(folders) if DAY in part]
    rest = text.replace(DAY, "")
    if not text.isprintable():
        return "it has a character that cannot be printed; write a path"
    if "://" in text:
        return (
            "it is an address; name a folder of this machine, or of the object store that `connection` names"
        )
    if days and (days != [len(folders) - 1] or folders[-1] != DAY):
        return "`{day}` is the name of the folder just before the file name; such as `landing/{day}/*.csv`"
    if "{" in rest or "}" in rest:
        return "braces have no meaning but in `{day}`; write one pattern, such as `landing/*.csv`"
    if any(map(_WILDCARDS.search, folders)):
        return "wildcards stand in the file name only; name one folder, such as `landing/suppliers/*.csv`"
    if ".." in folders:
        return "`..` is not allowed; write the folder itself, from the home folder or from `/`"
    if folders and folders[0].startswith("~") and folders[0] != "~":
        return "another user's folder cannot be named so; write it from `/`"
    return ""


def _problem_of_name(name: str) -> str:
    if DAY in name:
        return "`{day}` is a folder; such as `landing/{day}/*.csv`"
    plain = _plain(name)
    if name in ("", ".", "..", "~") or not (_WILDCARDS.search(name) or Path(plain).suffix):
        return "it names no files; add a pattern of their names, such as `landing/suppliers/*.csv`"
    if _UNFINISHED.match(name):
        return (
            "such names are those of unfinished files, which are not read; name files that neither begin with"
            " `.` or `_` nor end with .tmp, .part or .inprogress"
        )
    if plain.endswith(_OTHER_COMPRESSION):
        return (
            "files are decompressed by gzip only; let their names end with .gz, or write them without"
            " compression"
        )
    return ""
