"""Declarations that cannot be used, as assets that show what is wrong with them and are not materialized."""

import re
from collections.abc import Callable, Iterator, Sequence

import dagster as dg

from etl_assets.installed import Installed
from etl_assets.pipelines.origin import DeclarationOrigin
from etl_assets.pipelines.pipeline_file import PipelineFile
from etl_assets.pipelines.problem import printable

GROUP = "broken_pipelines"
_SHOWN = 20
"""Problems of a file that are shown."""


def broken_pipelines(
    found: Installed, owners: Sequence[str], of: Callable[[PipelineFile | None], bool] = lambda _: True
) -> list[dg.AssetSpec]:
    """Return an asset for each file with problems, and one for a folder that cannot be listed.

    Args:
        found: The pipelines of the installation.
        owners: Owners of the assets.
        of: Whether the asset of a file is wanted; None stands for folders.
    """
    return [
        dg.AssetSpec(
            dg.AssetKey([GROUP, name]),
            description=text,
            owners=list(owners),
            kinds={"yaml"},
            group_name=GROUP,
        )
        for name, text, file in _descriptions(found)
        if of(file)
    ]


def _descriptions(found: Installed) -> Iterator[tuple[str, str, PipelineFile | None]]:
    """Yield a name, a text in Markdown and the file of each asset; no name twice."""
    if found.unlisted is not None:
        text = "Let the platform read the folder, or remove it if there is nothing in it, and reload."
        yield "pipelines_folder", f"{_plain(found.unlisted)}. No pipeline in there runs. {text}", None
    names: set[str] = set()
    for file in found.broken:
        name = base = re.sub(r"[^A-Za-z0-9_]", "_", file.name) or "_"
        number = 1
        while name in names:
            number += 1
            name = f"{base}_{number}"
        names.add(name)
        yield name, "\n".join(_lines(file)), file


def _lines(file: PipelineFile) -> Iterator[str]:
    where = f"`{printable(file.label)}`"
    if file.origin is DeclarationOrigin.REST:
        where = f"it over REST (`PUT /v1/pipelines/{printable(file.name)}`)"
    yield f"This pipeline cannot be used. Correct {where}, then reload the definitions.\n"
    for problem in file.problems[:_SHOWN]:
        yield f"- {_plain(file.located(problem))}\n  Fix: {_plain(problem.fix)}"
    if (more := len(file.problems) - _SHOWN) > 0:
        yield f"- and {more:,} more: `etl-assets pipelines validate {file.argument}`"


def _plain(text: str) -> str:
    """Return a text that Markdown shows as it is, but for code in backticks."""
    return "".join(
        part if number % 2 else re.sub(r"([\\*_<>\[\]#|])", r"\\\1", part)
        for number, part in enumerate(re.split(r"(`[^`]*`)", text))
    )
