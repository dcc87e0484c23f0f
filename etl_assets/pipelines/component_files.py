"""Pipelines of a Dagster project: the documents of type `etl_assets.Pipeline` in the `defs.yaml` files of its
defs folder.

Belongs here: which of these files Dagster loads, and reading them. Does not belong here: Dagster's side of a
component (`etl_assets/components/`), and where a project has its defs folder (`dagster_project.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from etl_assets.pipelines import problem as places
from etl_assets.pipelines.pipeline_file import PipelineFile, read_content, validated
from etl_assets.pipelines.problem import Problem, dotted, near
from etl_assets.pipelines.yaml_tree import YamlTree, read_trees

PIPELINE = "etl_assets.Pipeline"
PLATFORM = "etl_assets.Platform"
FILE_NAMES = ("defs.yaml", "defs.yml", "component.yaml")
"""Names of component files. Of several in a folder Dagster reads the first."""
_FIELDS = ("type", "attributes", "requirements", "post_processing", "template_vars_module")
_FOLDER_TYPE = "DefsFolderComponent"
"""End of the type of a component below which Dagster looks for more."""
_TEMPLATE = re.compile(r"\{\{[^{}]*\b(env|context|project_root)\b[^{}]*\}\}")


def component_paths(folder: Path) -> Iterator[Path]:
    """Yield the component files of a defs folder and the folders in it, each folder before those in it.

    Hidden folders and links to folders are left out.

    Raises:
        OSError: a folder cannot be listed.
    """
    # Often asked for, and of projects with many folders: an entry knows its kind without another look at the
    # disk.
    with os.scandir(folder) as entries:
        found = {entry.name: entry for entry in entries}
    name = next((name for name in FILE_NAMES if name in found), None)
    if name is not None:
        yield folder / name
    for name in sorted(found):
        if not name.startswith(".") and name != "__pycache__" and found[name].is_dir(follow_symlinks=False):
            yield from component_paths(folder / name)


def read_components(folder: Path, environ: Mapping[str, str] | None = None) -> tuple[PipelineFile, ...]:
    """Read the pipelines of a defs folder, in the order in which Dagster loads them.

    Args:
        folder: The folder.
        environ: Environment variables, for references to them; by default the process's.

    Raises:
        OSError: a folder cannot be listed.
    """
    files: list[PipelineFile] = []
    closed: set[Path] = set()
    for path in component_paths(folder):
        if not closed.isdisjoint(path.parents):
            continue
        content = read_content(path, within=folder)
        if isinstance(content, PipelineFile):
            files.append(_unread(content))
            closed.add(path.parent)
            continue
        if _FOLDER_TYPE.encode() not in content:
            closed.add(path.parent)
        # Most component files of a project are of other types: they are not parsed.
        if b"etl_assets" in content:
            files += _pipelines(content, path, environ)
    return tuple(files)


def read_component_file(path: Path, environ: Mapping[str, str] | None = None) -> tuple[PipelineFile, ...]:
    """Read the pipelines of one component file. One without any has a problem.

    Args:
        path: The file.
        environ: Environment variables, for references to them; by default the process's.
    """
    content = read_content(path)
    if isinstance(content, PipelineFile):
        return (_unread(content),)
    return tuple(_pipelines(content, path, environ)) or (_without_pipelines(content, path),)


def _pipelines(content: bytes, path: Path, environ: Mapping[str, str] | None) -> Iterator[PipelineFile]:
    for number, tree in enumerate(read_trees(content)):
        if tree.value is None and tree.problems:
            yield _broken(path, number, *tree.problems)
        elif isinstance(tree.value, dict) and tree.value.get("type") == PIPELINE:
            yield _pipeline(tree, path, number, environ)


def _pipeline(tree: YamlTree, path: Path, number: int, environ: Mapping[str, str] | None) -> PipelineFile:
    problems = [*_component_problems(tree)]
    if not isinstance(tree.value.get("attributes"), dict):
        missing = Problem(
            tree.line(("attributes",)),
            "attributes",
            "`attributes` holds no mapping of fields",
            "write the declaration below `attributes:`, indented; `dg scaffold defs etl_assets.Pipeline"
            " NAME` makes one",
        )
        return _broken(path, number, *tree.problems, *problems, missing)
    declaration = tree.below("attributes")
    found = validated(declaration, path, environ, document=number)
    return found.with_problems([*problems, *_template_problems(found, declaration.value, ())])


def _component_problems(tree: YamlTree) -> Iterator[Problem]:
    for name in tree.value:
        if name not in _FIELDS:
            yield Problem(
                tree.line((name,)),
                dotted((name,)),
                f"there is no field `{name}` beside `type`",
                f"{near(name, _FIELDS)}fields: {', '.join(_FIELDS)}; those of the declaration stand below"
                " `attributes`",
            )
    if tree.value.get("template_vars_module") is not None:
        yield Problem(
            tree.line(("template_vars_module",)),
            "template_vars_module",
            "template variables are not replaced in a pipeline",
            "remove it; `${NAME}` in the source stands for an environment variable",
        )


def _template_problems(file: PipelineFile, value: Any, path: places.Path) -> Iterator[Problem]:
    """Yield the texts that mean Dagster's templates, which commands outside of Dagster could not replace."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _template_problems(file, each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _template_problems(file, each, (*path, index))
    elif isinstance(value, str) and _TEMPLATE.search(value):
        yield file.problem(
            path,
            "templates (`{{ … }}`) are not replaced in a pipeline",
            "`${NAME}` in the source stands for an environment variable",
        )


def _without_pipelines(content: bytes, path: Path) -> PipelineFile:
    trees = read_trees(content)
    types = [
        str(tree.value["type"]) for tree in trees if isinstance(tree.value, dict) and "type" in tree.value
    ]
    close = next((hint for each in types if (hint := near(each, (PIPELINE,)))), "")
    return _broken(
        path,
        0,
        Problem(
            None,
            "",
            f"the file has no component of type {PIPELINE}: {', '.join(types) or 'none at all'}",
            f"{close}write `type: {PIPELINE}`",
        ),
    )


def _unread(file: PipelineFile) -> PipelineFile:
    return replace(file, name=places.printable(file.path.parent.name), document=0)


def _broken(path: Path, number: int, *problems: Problem) -> PipelineFile:
    return PipelineFile(
        path=path,
        spec=None,
        problems=problems,
        name=places.printable(path.parent.name),
        document=number,
    )
