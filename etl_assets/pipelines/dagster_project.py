"""Where a Dagster project (`dg`) keeps its definitions.

Belongs here: reading `dg.toml` or `pyproject.toml` as Dagster does, without importing Dagster or the project.
Does not belong here: the files in the folder (`component_files.py`).
"""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any


def defs_folder(root: Path) -> Path | None:
    """Return the defs folder of the Dagster project in a folder; None if it has none, or there is no
    project.
    """
    for name in ("dg.toml", "pyproject.toml"):
        file = root / name
        try:
            status = file.stat()
            project = _project(file, status.st_mtime_ns, status.st_size)
        except (OSError, ValueError):  # Dagster says what is wrong with it
            continue
        if project:
            return _folder(root, project)
    return None


@functools.lru_cache(maxsize=8)
def _project(file: Path, _modified: int, _size: int) -> dict[str, Any]:
    with file.open("rb") as opened:
        content: Any = tomllib.load(opened)
    section = content if file.name == "dg.toml" else content.get("tool", {}).get("dg", {})
    project = section.get("project", {}) if isinstance(section, dict) else {}
    return project if isinstance(project, dict) else {}


def _folder(root: Path, project: dict[str, Any]) -> Path | None:
    module = project.get("defs_module") or f"{project.get('root_module')}.defs"
    parts = str(module).split(".")
    folders = (base.joinpath(*parts) for base in (root / "src", root))
    return next((folder for folder in folders if folder.is_dir()), None)
