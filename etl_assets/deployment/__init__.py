"""Files of a deployment that the commands read at run time, so that they are where the package is installed.

Belongs here: Dagster's instance (`dagster.yaml`) and what it loads (`workspace.yaml`), and their paths. Does
not belong here: what an installation's own settings make of them (`etl_assets.instance`), and what only
builds or sets up a machine (`deploy/`, which links to the files here).
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent

INSTANCE = _FOLDER / "dagster.yaml"
WORKSPACE = _FOLDER / "workspace.yaml"
