"""A Dagster project of a user's, as `dg` makes one, and loading it in this process."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Generator, Mapping
from configparser import ConfigParser
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

ROOT = Path(__file__).parents[2]
FILMS = """\
name: films
source: {type: files, path: "incoming/films/*.csv", id: [film]}
columns:
  film: {type: bigint, required: true}
  title: string
table: {keys: [film]}
"""
RATINGS = """\
name: film_ratings
description: What people think of films.
owners: [team:films]
source: {type: files, path: "incoming/film_ratings/*.csv"}
columns:
  rating_id: {type: bigint, required: true}
  film: bigint
  stars: {type: int, at_least: 1, at_most: 5}
transforms:
  - {type: lookup, table: films, on: {film: film}, columns: {title: title}}
table: {keys: [rating_id]}
"""
BROKEN = """\
name: cinemas
source: {type: files, path: "incoming/cinemas/*.csv"}
columns:
  cinema_id: bigint
  seats: {type: int, at_leest: 1}
table: {keys: [cinema]}
"""


def component(declaration: str, *more: str) -> str:
    """The content of a `defs.yaml` with one pipeline, or several."""
    documents = (
        f"type: etl_assets.Pipeline\nattributes:\n{textwrap.indent(each, '  ')}"
        for each in (declaration, *more)
    )
    return "---\n".join(documents)


@dataclass(frozen=True)
class DagsterProject:
    """A project with a package `shop`."""

    root: Path

    @property
    def defs(self) -> Path:
        return self.root / "src" / "shop" / "defs"

    @property
    def home(self) -> Path:
        return self.root / ".etl-assets"

    def write(self, folder: str, content: str, name: str = "defs.yaml") -> Path:
        path = self.defs / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def land(self, pipeline: str, name: str, content: str) -> None:
        path = self.home / "incoming" / pipeline / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def environment(self) -> dict[str, str]:
        """The environment of a shell in which the project and this checkout are installed."""
        metadata = self.root / "installed" / "etl_assets-0.1.0.dist-info"
        if not metadata.exists():
            metadata.mkdir(parents=True)
            (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: etl-assets\nVersion: 0.1.0\n")
            parser = ConfigParser()
            parser.read(ROOT / "setup.cfg")
            groups = parser["options.entry_points"].items()
            lines = (line for group, entries in groups for line in (f"[{group}]", entries.strip()))
            (metadata / "entry_points.txt").write_text("\n".join(lines))
        path = os.pathsep.join(map(str, (metadata.parent, self.root / "src", ROOT)))
        # Commands that run in this process set the second one.
        left_out = ("ETL_ASSETS_HOME", "DAGSTER_HOME")
        inherited = {key: value for key, value in os.environ.items() if key not in left_out}
        return {
            **inherited,
            "PYTHONPATH": path,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "COLUMNS": "200",
        }

    def shell(self, *command: str, exit_code: int = 0, more: Mapping[str, str] | None = None) -> str:
        """Run a command in the project's root, and return what it prints; of `dg` also what it says of
        errors.
        """
        done = subprocess.run(
            command,
            cwd=self.root,
            env={**self.environment(), **(more or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
        assert done.returncode == exit_code, done.stdout + done.stderr
        return done.stdout + done.stderr if command[0] == "dg" else done.stdout

    def load(self) -> dg.Definitions:
        """All definitions of the project, as a fresh code server loads them."""
        with self.importable():
            return dg.load_from_defs_folder(path_within_project=self.root)

    @contextmanager
    def importable(self) -> Generator[None]:
        sys.path.insert(0, str(self.root / "src"))
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.path.remove(str(self.root / "src"))
            for name in [each for each in sys.modules if each == "shop" or each.startswith("shop.")]:
                del sys.modules[name]


def dagster_project(root: Path) -> DagsterProject:
    """Write a project without definitions."""
    project = DagsterProject(root)
    project.defs.mkdir(parents=True)
    (root / "pyproject.toml").write_text(
        '[project]\nname = "shop"\nversion = "0.1.0"\n\n'
        '[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\nroot_module = "shop"\n'
    )
    (project.defs.parent / "__init__.py").write_text("")
    (project.defs / "__init__.py").write_text("")
    (project.defs.parent / "definitions.py").write_text(
        "from pathlib import Path\n\nimport dagster as dg\n\n\n@dg.definitions\ndef defs():\n"
        "    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
    )
    return project


def assets(definitions: dg.Definitions) -> dict[str, dg.AssetSpec]:
    """The specs of all assets, resolved as Dagster does at the start, by their keys."""
    definitions.get_repository_def().load_all_definitions()
    return {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}
