"""A Dagster project with pipelines: which component contributes which definitions.

A pipeline's component contributes what is its own. What all share is contributed once: by the component
`Platform`, or without one by the first pipeline.

Belongs here: reading the project, and dividing up the definitions. Does not belong here: building them
(`build.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import dagster as dg

from etl_assets import environment
from etl_assets.assets.broken_pipelines import broken_pipelines
from etl_assets.build import pipeline_definitions, platform_resources, shared_definitions
from etl_assets.components.pipeline import PipelineComponent
from etl_assets.components.platform import PlatformComponent
from etl_assets.errors import PipelinesBroken, SettingsError
from etl_assets.installed import Installed
from etl_assets.pipelines.component_files import PIPELINE, PLATFORM
from etl_assets.pipelines.pipeline_file import PipelineFile
from etl_assets.settings import Settings, load_settings, platform_file

VALIDATING = "DAGSTER_IS_DEFS_VALIDATION_CLI"
"""The variable that Dagster sets while it validates definitions: `dg check defs` and `dagster definitions
validate`.
"""


@dataclass(frozen=True, kw_only=True)
class Project:
    """The components of a Dagster project, and the installation that its pipelines are part of.

    Attributes:
        settings: The platform file of the installation.
        found: The pipelines of the installation.
        declarations: The declarations in the project's defs folder, by folder and number of the document.
        pipelines: The project's components of type `etl_assets.Pipeline`.
        platform: Its component of type `etl_assets.Platform`, if it has one.
    """

    settings: Settings
    found: Installed
    declarations: Mapping[tuple[Path | None, int | None], PipelineFile]
    pipelines: tuple[PipelineComponent, ...]
    platform: PlatformComponent | None

    def file(self, component: PipelineComponent) -> PipelineFile:
        """Return the declaration of a component.

        Raises:
            SettingsError: it is not among those that the installation's files declare.
        """
        found = self.declarations.get((component.folder, component.document))
        if found is not None:
            return found
        raise SettingsError(
            f"the component in {component.folder} is not known to the installation in {self.settings.home}",
            fix=f"declare it as `type: {PIPELINE}` in a defs.yaml of a folder that is no link; Python cannot"
            " make it",
        )

    @cached_property
    def files(self) -> tuple[PipelineFile, ...]:
        """The declarations of the project."""
        return tuple(self.file(each) for each in self.pipelines)

    def has(self, file: PipelineFile | None) -> bool:
        """Return whether a file declares a component of the project."""
        return any(file is each for each in self.files)


def pipeline_component_definitions(
    component: PipelineComponent, context: dg.ComponentLoadContext
) -> dg.Definitions:
    """Build the definitions of a pipeline's component."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # as in `build_definitions`
        project = _project(context)
        own = project.file(component)
        _expect_valid(project)
        specs = broken_pipelines(project.found, project.settings.owners, lambda file: file is own)
        pipelines = [
            each
            for each in project.found.catalog.pipelines
            if own.spec is not None and each.name == own.spec.name
        ]
        parts = [dg.Definitions(assets=specs), pipeline_definitions(project.settings, pipelines)]
        if project.platform is None and project.file(project.pipelines[0]) is own:
            parts += _shared(project, dg.in_process_executor)
        return dg.Definitions.merge(*parts)


def platform_component_definitions(
    component: PlatformComponent, context: dg.ComponentLoadContext
) -> dg.Definitions:
    """Build the definitions of the platform's component."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # as in `build_definitions`
        project = _project(context)
        executor = dg.in_process_executor if component.executor == "in_process" else None
        return dg.Definitions.merge(*_shared(project, executor))


def _shared(project: Project, executor: dg.ExecutorDefinition | None) -> Iterator[dg.Definitions]:
    """Yield all of the installation that is not a pipeline's of the project."""
    settings, catalog = project.settings, project.found.catalog
    own = {file.spec.name for file in project.files if file.spec is not None}
    yield pipeline_definitions(settings, [each for each in catalog.pipelines if each.name not in own])
    yield dg.Definitions(
        assets=broken_pipelines(project.found, settings.owners, lambda file: not project.has(file))
    )
    # Assets of the user's stay with the sensor that Dagster makes for them.
    yield shared_definitions(settings, dg.AssetSelection.assets(*(each.name for each in catalog.stages)))
    yield dg.Definitions(resources=platform_resources(settings), executor=executor)


def _project(context: dg.ComponentLoadContext) -> Project:
    settings, folder = _settings(context)
    found = settings.installed()
    tree = context.component_tree
    platforms = tree.get_all_components(of_type=PlatformComponent)
    if len(platforms) > 1:
        raise SettingsError(
            f"the project has {len(platforms)} components of type {PLATFORM}", fix="keep one of them"
        )
    return Project(
        settings=settings,
        found=found,
        declarations={
            (context.defs_module_path / file.path.parent.relative_to(folder), file.document): file
            for file in found.files
            if file.document is not None and file.path.is_relative_to(folder)
        },
        pipelines=tuple(tree.get_all_components(of_type=PipelineComponent)),
        platform=next(iter(platforms), None),
    )


def _settings(context: dg.ComponentLoadContext) -> tuple[Settings, Path]:
    """Return the platform file of the project's installation, and the project's defs folder as it names it.

    Raises:
        SettingsError: the installation does not know the project, so that commands would not run its
            pipelines.
    """
    environ = environment.with_default(environment.HOME, str(context.project_root / ".etl-assets"))
    settings = load_settings(environ)
    real = context.defs_module_path.resolve()
    for folder in settings.defs_folders:
        if folder.resolve() == real:
            return settings, folder
    raise SettingsError(
        f"the installation in {settings.home} does not know the pipelines in {real}",
        fix=f"write `pipelines: {{defs_folders: [{real}]}}` into {platform_file(environ)}, or leave"
        f" {environment.HOME.name} unset: the home folder is then {context.project_root / '.etl-assets'}",
        field="pipelines.defs_folders",
    )


def _expect_valid(project: Project) -> None:
    """Reject all declarations of the project that have problems, if Dagster validates definitions."""
    broken = [file for file in project.files if file.spec is None]
    if not broken or environment.value_of(VALIDATING) is None:
        return
    lines = [
        f"{file.located(problem, path=str(file.path))}\n  fix: {problem.fix}"
        for file in broken
        for problem in file.problems
    ]
    raise PipelinesBroken(
        "\n".join(["pipelines that cannot be used:", *lines]),
        fix="correct these files",
        pipelines=tuple(file.name for file in broken),
    )
