"""Declarations that captures generated, as pipeline files.

They are kept in the control store with the states of the tables, and in a file of the home folder, which is
all that loading definitions reads: it needs neither the source nor the control store.

Belongs here: that file. Does not belong here: what is in a declaration (`sources/captures/`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from etl_assets.pipelines.origin import DeclarationOrigin
from etl_assets.pipelines.pipeline_file import PipelineFile, unreadable, validated
from etl_assets.pipelines.yaml_tree import YamlTree

CAPTURED = "captured_pipelines.json"


def captured_path(home: Path) -> Path:
    """Return the file, which may not exist."""
    return home / CAPTURED


def captured_declaration(content: Mapping[str, Any]) -> PipelineFile:
    """Return a generated declaration with the problems that it has by itself."""
    capture = content["source"]["capture"]
    found = validated(YamlTree(value=dict(content)), Path(f"{content['name']} (capture {capture})"), {})
    return replace(found, origin=DeclarationOrigin.CAPTURE)


def read_captured(path: Path) -> tuple[PipelineFile, ...]:
    """Return the generated declarations. A file that cannot be read is one broken declaration."""
    try:
        return tuple(map(captured_declaration, orjson.loads(path.read_bytes())["pipelines"]))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = "the pipelines that captures generated cannot be read"
        fix = f"`etl-assets cdc discover` writes {path.name} again from the control store"
        return (unreadable(path, error, what, fix=fix, origin=DeclarationOrigin.CAPTURE),)
