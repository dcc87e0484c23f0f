"""The sample's pipelines as files of an installation."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

RENTALS, WAREHOUSE, SEARCH = "rentals", "warehouse", "search"
"""Connections that the files name."""


def pipeline_texts() -> dict[str, str]:
    """Return the text of each pipeline file, by its file name."""
    folder = files("etl_assets.stack.film_rental.pipelines")
    return {
        each.name: each.read_text("utf-8")
        for each in sorted(folder.iterdir(), key=lambda each: each.name)
        if each.name.endswith(".yaml")
    }


def copy_pipelines(folder: Path) -> tuple[Path, ...]:
    """Write the pipeline files into a folder, such as `<home>/pipelines`. A file that is there stays.

    Returns:
        The files, whether written now or before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in pipeline_texts().items():
        path = folder / name
        if not path.exists():
            path.write_text(text, "utf-8")
        paths.append(path)
    return tuple(paths)
