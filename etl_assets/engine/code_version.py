"""Detect changes of what a process has loaded: code, packages, the platform file, environment variables.

Belongs here: the comparison. Does not belong here: what happens to an outdated process (`engine.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from etl_assets import environment
from etl_assets.errors import SettingsError
from etl_assets.instance import with_driver
from etl_assets.pipelines.component_files import component_paths
from etl_assets.pipelines.pipeline_file import is_pipeline_file, pipelines_folder
from etl_assets.settings import home_folder, load_settings, platform_file

_PACKAGE = Path(__file__).parents[1]
_OF_A_RUN = (environment.HOME.name, environment.FAILPOINT.name)
"""Variables that each run reads for itself, and the one by which the engine is found."""


def loaded_state(environ: Mapping[str, str]) -> str:
    """Return a digest of everything that definitions depend on. Costs a `stat` per module, about 10 ms."""
    facts = [sys.executable]
    facts += (f"{file} {_version(file)}" for file in sorted({*_loaded_files(), *_PACKAGE.rglob("*.py")}))
    facts.append(_version(Path(sysconfig.get_paths()["purelib"])))
    file = platform_file(environ)
    facts.append(file.read_text("utf-8", errors="replace") if file.is_file() else "")
    facts += (f"{each} {_version(each)}" for each in _declarations(environ))
    facts += (f"{key}={value}" for key, value in variables(environ).items())
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the platform's variables that are set.

    The database address is in the form in which `prepare_instance` leaves it to other processes.
    """
    found = ((variable.name, variable.read(environ)) for variable in environment.VARIABLES)
    given = {name: value for name, value in found if value is not None and name not in _OF_A_RUN}
    if (url := given.get(environment.POSTGRES_URL.name)) is not None:
        given[environment.POSTGRES_URL.name] = with_driver(url)
    return given


def _declarations(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files that declare pipelines, or may."""
    folder = pipelines_folder(home_folder(environ))
    yield from filter(is_pipeline_file, sorted(folder.iterdir()) if folder.is_dir() else ())
    # A platform file that is wrong, or a folder that cannot be listed, stops whatever else would be done.
    with contextlib.suppress(SettingsError, OSError):
        for defs_folder in load_settings(environ).defs_folders:
            yield from component_paths(defs_folder)


def _loaded_files() -> Iterator[Path]:
    """Yield the loaded modules outside the installation. Those inside change with its folder."""
    installed = (sys.prefix, sys.base_prefix)
    for module in tuple(sys.modules.values()):
        # Not `getattr`, which would import lazy modules.
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and not file.startswith(installed):
            yield Path(file)


def _version(file: Path) -> str:
    try:
        found = file.stat()
    except OSError:
        return "gone"
    return f"{found.st_mtime_ns} {found.st_size}"
