"""What schedules show only together: pipelines in `after` that do not exist, and circles of `after`.

A pipeline with problems may be named: the schedule waits until it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from etl_assets.pipelines.origin import DeclarationOrigin
from etl_assets.pipelines.pipeline_file import PipelineFile
from etl_assets.pipelines.problem import Path, Problem, near


def with_schedule_problems(
    files: Sequence[PipelineFile], built_in: Collection[str]
) -> tuple[PipelineFile, ...]:
    """Return the files with the problems of their `after`.

    Args:
        files: All declarations.
        built_in: Names of the built-in pipelines that read a source.
    """
    after = {file.name: _after(file) for file in files if file.spec is not None}
    return tuple(
        file.with_problems(found) if (found := [*_problems(file, files, built_in, after)]) else file
        for file in files
    )


def _problems(
    file: PipelineFile,
    files: Sequence[PipelineFile],
    built_in: Collection[str],
    after: Mapping[str, Sequence[str]],
) -> Iterator[Problem]:
    sees_all = file.origin is not DeclarationOrigin.REST
    names = {each.name for each in files if sees_all or each.tenant == file.tenant} | set(built_in)
    named = _after(file)
    for index, name in enumerate(named):
        place: Path = ("schedule", "after", index)
        if name not in names:
            others = sorted(names - {file.name})
            fix = f"{near(name, others)}pipelines: {', '.join(others) or 'no other one is there'}"
            yield file.problem(place, f"there is no pipeline `{name}`", fix)
        elif circle := _circle(name, file.name, after):
            way = " → ".join((file.name, *circle))
            yield file.problem(place, f"schedules go in a circle: {way}", "take one of these `after` out")


def _after(file: PipelineFile) -> tuple[str, ...]:
    return () if file.spec is None or file.spec.schedule is None else file.spec.schedule.after


def _circle(start: str, end: str, after: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return a way over `after` from one pipeline to another, both included; empty if there is none."""
    ways: list[tuple[str, ...]] = [(start,)]
    seen = {start}
    while ways:
        way = ways.pop()
        if way[-1] == end:
            return way
        for each in after.get(way[-1], ()):
            if each not in seen:
                seen.add(each)
                ways.append((*way, each))
    return ()
